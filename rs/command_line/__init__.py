"""Commands, as Typer functions: those of ``rs``, which stages share, and the shell that runs every
command.
"""
