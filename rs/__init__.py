"""Certified robustness by randomized smoothing."""
