"""What a campaign does, in which order: ``benchmarks/plans/*.yaml``."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from ruamel.yaml import YAML

from benchmarks.legs import Leg, chosen, legs, needed
from rs import params
from rs.errors import InputError
from rs.params import validated
from rs.runtime import code_fingerprint, scratch
from rs.storage import files

PLANS = Path(__file__).parent / "plans"


@validated
class Entry:
    """One line of a plan."""

    legs: list[str]  # patterns of names as DVC has them; what they need is made before them
    into: str | None = None  # another folder than the pipeline's for what they make
    words: str = ""  # more words of their commands
    as_long_as: str | None = None  # train as many seconds as this training took
    acr: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None  # the campaign ends outside of it


@validated
class Plan:
    """A file of plans."""

    params: dict[str, Any]  # top-level sections in place of those of params.yaml
    steps: list[dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """One leg of a campaign."""

    name: str
    leg: Leg
    identity: str  # of the command, the parameters and the code that make it
    acr: tuple[float, float] | None = None
    as_long_as: Leg | None = None

    def words(self) -> list[str]:
        """The command.

        Raises:
            InputError: If the training that it is to take as long as is not finished.
        """
        words = [sys.executable, *self.leg.command[1:]]
        return words if self.as_long_as is None else [*words, "--seconds", str(_seconds(self.as_long_as))]


def _seconds(leg: Leg) -> float:
    path = next(out for out in leg.outs if out.parts[0] == "logs") / "provenance.json"
    if not path.exists():
        raise InputError(f"{path} must be there before another training can take as long; put {leg.name} before it")
    return files.read_json(path)["training_seconds"]


def read_plan(name: str, root: Path | None) -> list[Step]:
    """Read a plan, and what of the pipeline it needs, in order; each leg comes once.

    Args:
        name: A file ``*.yaml``, or the name of one in ``benchmarks/plans``.
        root: Folder of the raw data, in the parquet layout.
    Raises:
        InputError: If the plan is not one, or names what the pipeline has not.
    """
    path = Path(name) if name.endswith(".yaml") else PLANS / f"{name}.yaml"
    plan = params.check(Plan, params.read(path), str(path))
    entries = [params.check(Entry, entry, f"{path}: steps.{number}") for number, entry in enumerate(plan.steps)]
    values, given = params.read(Path("params.yaml")), Path("params.yaml")
    if plan.params:
        values, given = values | plan.params, scratch.root() / f"{path.stem}.params.yaml"
        _write_yaml(given, values)
    known = [_completed(leg, given, root) for leg in legs(params.read(Path("dvc.yaml")), values)]
    steps: dict[str, Step] = {}
    for entry in entries:
        for step in _steps(entry, known, values):
            kept = steps.get(step.name, step)
            steps[step.name] = replace(kept, acr=kept.acr or step.acr)
    return list(steps.values())


_version = cache(code_fingerprint.version)  # of the code that runs now, which takes a tenth of a second to read


def _identity(leg: Leg, values: dict[str, Any]) -> str:
    """Hash of what decides about the outputs of a leg: where the raw data lie does not, nor how parameters came."""
    words = leg.command[: leg.command.index("--params")] if "--params" in leg.command else leg.command
    chosen = {key: params.section(values, *key.split(".")) for key in leg.params}
    entries = [f"{leg.command[2].replace('.', '/')}.py"]
    if leg.name == "code":  # which fingerprints all of it
        entries = sorted(path.as_posix() for path in [*Path("stages").glob("*.py"), *Path("rs").rglob("*.py")])
    method = next((dep.stem for dep in leg.deps if dep.parent == Path("code/methods")), None)
    made = {
        "command": words,
        "params": chosen,
        "code": _version(*entries, method=method),
        "versions": code_fingerprint.series(),
    }
    return hashlib.sha256(repr(made).encode()).hexdigest()[:16]


def _completed(leg: Leg, given: Path, root: Path | None) -> Leg:
    """The leg with what is not part of its stage: the parameter file, and where the raw data lie."""
    more = ["--params", str(given)]
    if leg.name.startswith("prepare@") and root is not None:
        more += ["--source", "parquet", "--root", str(root)]
    return replace(leg, command=(*leg.command, *more))


def _write_yaml(path: Path, values: dict[str, Any]) -> None:
    with files.replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(values, file)


def _steps(entry: Entry, known: list[Leg], values: dict[str, Any]) -> Iterator[Step]:
    own = [leg for pattern in entry.legs for leg in chosen(known, pattern)]
    moved = {str(out): f"{entry.into}/{out}" for leg in own for out in leg.outs} if entry.into else {}
    for leg in own:
        yield from (Step(one.name, one, _identity(one, values)) for one in needed(known, leg) if one not in own)
        longest = chosen(known, entry.as_long_as)[0] if entry.as_long_as and leg.name.startswith("train") else None
        name = f"{entry.into}/{leg.name}" if entry.into else leg.name
        made, identity = _moved(leg, moved, shlex.split(entry.words)), _identity(leg, values) + entry.words
        yield Step(name, made, identity, entry.acr and tuple(entry.acr), longest)


def _moved(leg: Leg, moved: dict[str, str], words: list[str]) -> Leg:
    command = [moved.get(word, word) for word in leg.command]
    deps, outs = (tuple(Path(moved.get(str(one), one)) for one in paths) for paths in (leg.deps, leg.outs))
    return Leg(leg.name, (*command, *words), deps, outs, leg.params)
