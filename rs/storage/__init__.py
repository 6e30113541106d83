"""Files, written whole or not at all and read strictly; certificate rows, and how they are written
and resumed.
"""
