"""Measurements side by side, run by people: what a way of computing costs, and that it gives the
same answer.
"""
