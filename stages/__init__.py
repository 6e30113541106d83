"""The stages of the pipeline: commands over the library ``rs``, as ``python -m stages.NAME``."""
