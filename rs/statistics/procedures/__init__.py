"""Certification procedures: how many samples certify an image, and what its row says of that.

Each of ``fixed`` and ``early`` is a procedure: the test that asks for samples, the text of its
mode, and the rules that its rows obey. Other code asks ``table``, and does not know which
procedures exist.
"""
