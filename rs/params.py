"""Reading and validating ``params.yaml``, where every number of the pipeline comes from."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Hashable, Mapping
from functools import cache, wraps
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, dataclass_transform

import pydantic.dataclasses
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from rs.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from typing_extensions import TypeForm

STRICT = ConfigDict(strict=True, extra="forbid")
"""No conversions and no unknown keys: ``lam: "12"`` and ``lamb: 12`` are reported as mistakes."""

MAX_BYTES, MAX_DEPTH = 2**20, 50
"""Bounds of a parameter file: its size and its nesting."""

T = TypeVar("T")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
NonNegativeCount = Annotated[int, Field(ge=0, lt=2**63)]
MAX_SIDE = 2**14
"""Largest side of an image, in pixels."""
MAX_NUMBERS = 2**24
"""Numbers of an input, all axes together; 2,364 by 2,364 pixels in color."""

Length = Annotated[int, Field(ge=1, le=MAX_NUMBERS)]
"""Length of one axis of an input."""

MAX_CLASSES = 100_000
"""Classes of a data set or a model; ImageNet-21k has 21,841."""
MIN_SIGMA, MAX_SIGMA = 1e-6, 10.0
"""Noise std, in pixels of [0, 1]; a larger one is probably on the 0-255 scale."""
MAX_FAULTS, MAX_SHOWN = 20, 200
"""Faults of one record that a message names, and characters of a wrong value that it shows."""
MAX_NAME = 200
"""Most characters of a name in a file name; file systems take 255 bytes, temporaries add 28."""
MAX_PATH = 3000
"""Most bytes of a path in a file; systems take 4,095, including what is added to it."""


def check_bounds(bounds: Any) -> Bounds:
    """Return the least and the largest value of inputs as floats; ``None`` for unbounded inputs.

    Raises:
        InputError: If they are anything else than two finite, increasing numbers.
    """
    if bounds is None:
        return None
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise InputError(
            "bounds must be the least and the largest value of the inputs, such as (-1, 1), or "
            f"None for unbounded inputs, got {bounds!r}"
        )
    return low, high


def describe_bounds(bounds: Bounds) -> str:
    """Return bounds as text.

    >>> describe_bounds((-1.0, 1.0)), describe_bounds(None)
    ('[-1, 1]', 'no bounds')
    """
    return "no bounds" if bounds is None else f"[{bounds[0]:g}, {bounds[1]:g}]"


Bounds = Annotated[tuple[float, float] | None, AfterValidator(check_bounds)]
"""The least and the largest value of inputs; ``None`` for unbounded inputs."""

PIXELS: Bounds = (0.0, 1.0)
"""The bounds of images."""


def _check_path(path: str) -> str:
    """Check that looking for a path cannot fail in the system: it is short and has no NUL."""
    content = os.fsencode(path)
    longest_name = max(map(len, content.split(b"/")))
    if b"\0" in content or len(content) > MAX_PATH or longest_name > 255:
        raise ValueError(
            f"a path must have at most {MAX_PATH:,} bytes, 255 per name, and no NUL; "
            f"got {path[:40]!r}"
        )
    return path


FilePath = Annotated[str, AfterValidator(_check_path)]
"""The path of a file or folder that another file names."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def validated(cls: type[T]) -> type[T]:
    """Make a class a record: frozen, keyword-only, without conversion of types or unknown keys.

    Other values raise an ``InputError`` that names every wrong one in a line.
    """
    kind: Any = pydantic.dataclasses.dataclass(cls, frozen=True, kw_only=True, config=STRICT)
    original_init = kind.__init__

    @wraps(original_init)
    def init_or_refuse(self: T, *unnamed: Any, **values: Any) -> None:
        try:
            original_init(self, *unnamed, **values)
        except ValidationError as error:
            message = f"{cls.__name__} must have valid values, but: {'; '.join(faults(error))}"
            for fault in error.errors():
                if fault["type"] in _UNKNOWN and len(fault["loc"]) == 1:
                    message += did_you_mean(str(fault["loc"][0]), kind.__dataclass_fields__)
            if hasattr(cls, "loss"):  # a training method
                message += "; rs.loss and params.yaml have presets"
            raise InputError(message) from error

    kind.__init__ = init_or_refuse
    return cast(type[T], kind)


PRETRAINING = "gaussian"
"""The method of short training runs that come before another one (``rs.training.pretraining``)."""


def read_params(path: Path) -> dict[str, Any]:
    """Read a parameter file as YAML 1.2, as DVC does (``1e-3`` is a number).

    Raises:
        InputError: If the file is missing, is not YAML, or does not hold a mapping.
    """
    if not path.is_file():
        raise InputError(
            f"{path} must be a file, but there is none; "
            "correct its name, or run from the project's folder"
        )
    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{path} must have at most {MAX_BYTES:,} bytes, got {path.stat().st_size:,}; "
            "give a file of parameters"
        )
    try:
        values = parse(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be text in UTF-8, but: {error}; convert it") from error
    if not isinstance(values, dict):
        raise InputError(
            f"{path} must hold a mapping of sections, got {type(values).__name__}; write each one "
            "as NAME: VALUES"
        )
    return values


def packaged() -> dict[str, Any]:
    """Return the parameters that the package contains."""
    return read_params(Path(__file__).with_name("params.yaml"))


def parse(text: str, source: str) -> Any:
    """Parse YAML 1.2 from ``source``.

    Raises:
        InputError: If the text is not YAML, is nested deeper than :data:`MAX_DEPTH`, or has an
            alias: a few lines of them can stand for endlessly many values.

    >>> parse("{first: 500}", "--subset")
    {'first': 500}
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = MAX_DEPTH
    yaml.Composer = _PlainComposer
    try:
        return yaml.load(text)
    except (YAMLError, ValueError) as error:  # ValueError: an invalid date or number
        message = " ".join(str(error).split())
        raise InputError(f"{source} must be YAML, but: {message[:500]}; correct it") from error


class _PlainComposer(Composer):
    """Refuses aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.parser.check_event(AliasEvent):
            raise YAMLError("it has an alias (*name) instead of a value")
        return super().compose_node(parent, index)


def section(values: dict[str, Any], key: str) -> Any:
    """Return the value at a dotted key.

    Raises:
        InputError: If it is missing; names the first key that is, and the known ones beside it.

    >>> section({"recipes": {"digits": {"pool": {"timed": 20}}}}, "recipes.digits.pool")
    {'timed': 20}
    """
    value: Any = values
    path = key.split(".")
    for depth, name in enumerate(path, 1):
        if not isinstance(value, dict) or name not in value:
            names = ", ".join(map(str, value)) if isinstance(value, dict) else "none"
            raise InputError(
                f"params.yaml must have the key {'.'.join(path[:depth])}; known here: {names}; add "
                "it, or correct its name"
            )
        value = value[name]
    return value


def validate(
    kind: TypeForm[T],
    values: Any,
    where: str,
    origins: Mapping[str, str] | None = None,
    source: str = "params.yaml",
) -> T:
    """Validate ``values`` as a ``kind``: a class under :func:`validated`, or any annotated type.

    Args:
        kind: Type to make of the values.
        values: Plain Python values, as :func:`read_params` returns them.
        where: Dotted key of the values, for the message; empty for a whole file.
        origins: For single values that come from another section, its dotted key, as
            ``rs.recipes.merge`` returns it; or the option of the command line, ``--n``.
        source: The file that the values come from, for the message.
    Raises:
        InputError: One line that names every wrong key, what must hold and what was found.
    """
    has_names = is_record(kind)
    if has_names and not (isinstance(values, dict) and all(isinstance(key, str) for key in values)):
        raise InputError(
            f"{source}: {where or 'the file'} must be a mapping of named values, got {values!r}; "
            "write NAME: VALUE"
        )

    def key(path: list[str]) -> str:
        origin = where
        if origins and path:
            origin = origins.get(path[0], where)
        if origin.startswith("--"):
            return origin
        return ".".join(filter(None, [origin, *path]))

    try:
        if not has_names:
            return _adapter(cast(Hashable, kind)).validate_python(values, strict=True)
        filled: Any = object.__new__(cast(type[T], kind))
        filled.__init__.__wrapped__(filled, **values)  # whose error says where each value is
        return cast(T, filled)
    except ValidationError as error:
        messages = faults(error, key, _REMEDIES)
        text = "; ".join(messages)
        if not all(message.startswith("--") for message in messages):
            text = f"{source}: {text}"
        raise InputError(text) from error


def record(kind: TypeForm[T], values: Any, must: str, remedy: str) -> T:
    """Make a record of values of JSON, whose lists stand for tuples too.

    Args:
        kind: A class under :func:`validated`, or any annotated type.
        values: As ``rs.storage.files.read_json`` returns them.
        must: What they must be, for the message.
        remedy: What to do where they are not.
    Raises:
        InputError: One line that names every wrong key, what must hold and what was found.

    >>> record(dict[str, Count], {"first": 0}, "x.json must have counts", "correct it")
    Traceback (most recent call last):
    rs.errors.InputError: x.json must have counts, but: first: Input should be greater than or \
equal to 1, got 0; correct it
    """
    try:
        return _adapter(cast(Hashable, kind)).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise InputError(f"{must}, but: {'; '.join(faults(error))}; {remedy}") from error


@cache  # making one takes longer than reading a file
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def is_record(kind: Any) -> bool:
    """Return whether a type is a class under :func:`validated`."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_REMEDIES = {"missing": "; add it", **dict.fromkeys(_UNKNOWN, "; correct its name or remove it")}


def faults(
    error: ValidationError,
    key: Callable[[list[str]], str] = ".".join,
    remedies: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return a message per wrong key; above :data:`MAX_FAULTS`, the first ones and how many more.

    Args:
        error: Of pydantic.
        key: From the names that lead to a value to its key in messages.
        remedies: What to do about some kinds of faults, by pydantic's name of them.
    """
    messages = []
    for fault in error.errors()[:MAX_FAULTS]:
        messages.append(_describe_fault(fault, key) + remedies.get(fault["type"], ""))
    more = error.error_count() - len(messages)
    if more:
        messages.append(f"and {more:,} more values are at fault")
    return messages


def _describe_fault(fault: Any, key_of: Callable[[list[str]], str]) -> str:
    path = [str(name) for name in fault["loc"] if name not in _UNION_MEMBERS]
    key = key_of(path)
    if fault["type"] == "missing":
        return f"{key} is missing"
    if fault["type"] in _UNKNOWN:
        return f"{key} is not a known key"
    problem = fault["msg"].removeprefix("Value error, ")
    minimum = fault.get("ctx", {}).get("ge")
    if isinstance(minimum, float):  # pydantic writes 1e-200 with two hundred zeros
        problem = f"{problem.rpartition(' ')[0]} {minimum:g}"
    if "got " not in problem:
        value = getattr(fault["input"], "kwargs", fault["input"])  # a whole dataclass: its values
        problem += f", got {value!r:.{MAX_SHOWN}}"
    return f"{key}: {problem}" if key else problem


_UNION_MEMBERS = ("FittedWeights", "FittedThresholds")
"""Names that pydantic adds to the path of a value."""


def check_sigma(sigma: Any, name: str = "sigma", bounds: Bounds = PIXELS) -> float:
    """Return a noise std for inputs; for pixels, refuse one that is probably on the 0-255 scale.

    Args:
        sigma: What was given.
        name: What messages call it.
        bounds: Of the inputs.
    Raises:
        InputError: If it is not a number of at least :data:`MIN_SIGMA`, or for pixels of [0, 1] is
            above :data:`MAX_SIGMA`.
    """
    is_number = isinstance(sigma, Real) and not isinstance(sigma, bool)
    if not is_number or not MIN_SIGMA <= sigma < math.inf:
        raise InputError(
            f"{name} must be a positive number, got {sigma!r}; it is the std of the noise, "
            f"in the unit of the inputs, at least {MIN_SIGMA:g}"
        )
    if bounds == PIXELS and sigma > MAX_SIGMA:
        raise InputError(
            f"{name} is in pixels of [0, 1] and must be at most {MAX_SIGMA:g}, got {sigma:g}; "
            f"did you mean {sigma:g}/255 = {sigma / 255:.3g}?"
        )
    return float(sigma)
