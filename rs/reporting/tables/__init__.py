"""The tables of a study: their content, and how they are printed."""
