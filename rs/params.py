"""Reading and validating ``params.yaml``: the edge at which every number of the pipeline comes in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform

import pydantic.dataclasses
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from rs.errors import InputError

STRICT = ConfigDict(strict=True, extra="forbid")
"""No conversions and no unknown keys: ``lam: "12"`` and ``lamb: 12`` are mistakes, and are said so."""

T = TypeVar("T")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
NonNegativeCount = Annotated[int, Field(ge=0)]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def validated(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass that checks its values; without defaults, because those are in params.yaml."""
    return pydantic.dataclasses.dataclass(cls, frozen=True, kw_only=True, config=STRICT)


def read(path: Path) -> dict[str, Any]:
    """Read a parameter file as YAML 1.2, as DVC does (``1e-3`` is a number).

    Raises:
        InputError: If the file is missing, is not YAML, or does not hold a mapping.
    """
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; run from the project's folder or give --params")
    try:
        values = parse(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be text in UTF-8, but: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold a mapping of sections, got {type(values).__name__}")
    return values


def parse(text: str, source: str) -> Any:
    """Parse YAML 1.2 from ``source``.

    Raises:
        InputError: If the text is not YAML.

    >>> parse("{first: 500}", "--subset")
    {'first': 500}
    """
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise InputError(f"{source} must be YAML, but: {' '.join(str(error).split())}") from error


def section(params: dict[str, Any], *keys: str) -> Any:
    """Return ``params[keys[0]][keys[1]]...``.

    Raises:
        InputError: If a key is missing; names the dotted key and the known ones.
    """
    value: Any = params
    for depth, key in enumerate(keys):
        if not isinstance(value, dict) or key not in value:
            known = ", ".join(map(str, value)) if isinstance(value, dict) else "none"
            raise InputError(f"params.yaml must have the key {'.'.join(keys[: depth + 1])}; known here: {known}")
        value = value[key]
    return value


def check(kind: type[T], values: Any, where: str) -> T:
    """Validate ``values`` as a ``kind`` (a pydantic model or dataclass, or any annotated type).

    Args:
        kind: What the values must make.
        values: Plain Python values, as :func:`read` gives them.
        where: Dotted key of the values, for the message.
    Raises:
        InputError: One line that names every key at fault, what must hold and what came.
    """
    by_key = isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")
    if by_key and not (isinstance(values, dict) and all(isinstance(key, str) for key in values)):
        raise InputError(f"params.yaml: {where} must be a mapping of named values, got {values!r}")
    try:
        return kind(**values) if by_key else TypeAdapter(kind).validate_python(values, strict=True)
    except ValidationError as error:
        faults = "; ".join(_fault(where, item) for item in error.errors())
        raise InputError(f"params.yaml: {faults}") from error


def _fault(where: str, item: Any) -> str:
    key = ".".join([where, *map(str, item["loc"])])
    match item["type"]:
        case "missing":
            return f"{key} is missing; add it"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"{key} is not a known key; correct its name or remove it"
        case _:
            came = getattr(item["input"], "kwargs", item["input"])  # of a whole dataclass, its values
            return f"{key}: {item['msg'].removeprefix('Value error, ')}, got {came!r}"


def for_sigma(values: Any, sigma: float, where: str) -> Any:
    """Replace every mapping from noise levels to values by its value at ``sigma``, at any depth.

    A mapping whose keys are all numbers is one from noise levels; ``{0.25: 1.0, 0.5: 2.0}`` at 0.5 is 2.0.

    Raises:
        InputError: If such a mapping has no value for ``sigma``.

    >>> for_sigma({"epsilon": {0.25: 1.0, 0.5: 2.0}, "draws": 4}, 0.5, "advmacer")
    {'epsilon': 2.0, 'draws': 4}
    """
    if not isinstance(values, dict):
        return values
    if values and all(isinstance(key, int | float) for key in values):
        if sigma not in values:
            known = ", ".join(map(str, values))
            raise InputError(f"params.yaml: {where} must have a value for sigma {sigma}; it has {known}")
        return values[sigma]
    return {key: for_sigma(value, sigma, f"{where}.{key}") for key, value in values.items()}
