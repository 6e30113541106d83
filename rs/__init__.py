"""Certified robustness by randomized smoothing.

One package a concept; docs/architecture.md draws them, and tests/test_imports.py holds which may import which:

    statistics      bounds, radii and tests, without torch and without files
    study           what params.yaml declares
    runtime         the machine: devices, arithmetic, processes, random streams
    storage         files, and certificate rows
    data            data sets
    models          networks and checkpoints
    smoothing       the smoothed classifier
    methods         one training method a file
    training        the training loop
    ensemble        ensembles before smoothing
    certification   from classifiers to rows
    reporting       from rows to tables, pictures and claims
    command_line    the command rs, and how functions become programs
    errors, params  what all of them may import
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports a name's module when the name is asked for.

    So what needs no torch does not wait for it, and the fingerprint of a stage's code covers what it runs alone.

    Args:
        package: Its name.
        names: From a name to the module that has it.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(names[name]), name)

    return find


__all__ = ["ABSTAIN", "Certificate", "SmoothedClassifier"]
__getattr__ = lazily(
    __name__,
    {
        "ABSTAIN": "rs.statistics.certificate",
        "Certificate": "rs.statistics.certificate",
        "SmoothedClassifier": "rs.smoothing.classifier",
    },
)
