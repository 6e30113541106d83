"""Bounds, radii and tests: from votes to certificates, averages and ensemble weights; no torch, no
files.
"""
