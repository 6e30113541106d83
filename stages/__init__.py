"""The stages of the pipeline: thin commands over the library ``rs``; run one as ``python -m
stages.NAME``.
"""
