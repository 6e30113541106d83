"""The tables of a study: what stands in them, and how they are printed."""
