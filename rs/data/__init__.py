"""Data sets: their sources, the prepared form on disk, and the images that training and
certification see.
"""
