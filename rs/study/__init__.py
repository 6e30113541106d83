"""What params.yaml declares: the grid of cells, the ensembles of them, and which images are
certified.
"""
