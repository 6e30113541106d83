"""The cells of dvc.yaml as commands with dependencies and outputs, for a machine where DVC is not installed."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rs.errors import InputError


@dataclass(frozen=True)
class Leg:
    """One cell of the pipeline."""

    name: str  # as DVC calls it: STAGE@VALUE-VALUE-...
    command: tuple[str, ...]
    deps: tuple[Path, ...]
    outs: tuple[Path, ...]
    params: tuple[str, ...] = ()  # dotted keys that it depends on


def legs(dvc: dict[str, Any], params: dict[str, Any]) -> list[Leg]:
    """Every cell, in the order of ``dvc.yaml``; values come from ``params``, as DVC takes them."""
    return [leg for name, stage in dvc["stages"].items() for leg in _cells(name, stage, params)]


def _cells(name: str, stage: dict[str, Any], params: dict[str, Any]) -> Iterator[Leg]:
    axes = {key: _values(given, params) for key, given in stage.get("matrix", {}).items()}
    for chosen in itertools.product(*axes.values()):
        item = dict(zip(axes, chosen, strict=True))

        def filled(text: str, item: dict[str, Any] = item) -> str:
            known = {f"item.{key}": value for key, value in item.items()} | params
            return re.sub(r"\$\{([^}]+)\}", lambda found: str(known[found[1]]), text)

        def paths(key: str, filled: Any = filled) -> tuple[Path, ...]:
            given = (next(iter(one)) if isinstance(one, dict) else one for one in stage.get(key, []))
            return tuple(Path(filled(one)) for one in given)

        cell = "-".join(str(value) for value in chosen)
        command = tuple(shlex.split(filled(stage["cmd"])))
        keys = tuple(filled(key) for key in stage.get("params", []))
        yield Leg(f"{name}@{cell}" if cell else name, command, paths("deps"), paths("outs"), keys)


def _values(given: Any, params: dict[str, Any]) -> list[Any]:
    """Values of one axis: a list, of which some may be ``${name}``, or ``${name}`` of a list."""
    found = [params[one[2:-1]] if isinstance(one, str) and one.startswith("${") else one for one in _listed(given)]
    return [value for one in found for value in _listed(one)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def chosen(known: Sequence[Leg], pattern: str) -> list[Leg]:
    """The legs whose names match ``pattern`` (``*`` for anything).

    Raises:
        InputError: If there is none.
    """
    found = [leg for leg in known if fnmatchcase(leg.name, pattern)]
    if not found:
        stages = ", ".join(dict.fromkeys(leg.name.partition("@")[0] for leg in known))
        raise InputError(f"a plan must name cells of the pipeline, got {pattern!r}; its stages are {stages}")
    return found


def needed(known: Sequence[Leg], leg: Leg, found: dict[str, Leg] | None = None) -> list[Leg]:
    """What must be made before ``leg``, at any depth, in order, each once, and then ``leg``."""
    found = {} if found is None else found
    for dep in leg.deps:
        for maker in known:
            if maker.name not in found and any(overlap(dep, out) for out in maker.outs):
                needed(known, maker, found)
    found[leg.name] = leg
    return list(found.values())


def overlap(a: Path, b: Path) -> bool:
    """Whether one of two paths is the other, or in it."""
    return a == b or a in b.parents or b in a.parents
