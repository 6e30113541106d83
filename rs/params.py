"""Reading and validating ``params.yaml``: the edge at which every number of the pipeline comes in."""

from __future__ import annotations

import copy
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

from rs.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import TypeForm

STRICT = ConfigDict(strict=True, extra="forbid")
"""No conversions and no unknown keys: ``lam: "12"`` and ``lamb: 12`` are mistakes, and are said so.
"""

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
Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]
"""Channels, height or width of an image."""
MAX_CLASSES = 100_000
"""Classes of a data set or a model; ImageNet-21k has 21,841."""
MIN_SIGMA, MAX_SIGMA = 1e-6, 10.0
"""Noise std, in pixels of [0, 1]: adding less changes nothing in float32, and a larger one probably
counts 255ths.
"""
MAX_FAULTS, MAX_SHOWN = 20, 200
"""Faults of one record that a message names, and characters of a value at fault that it shows."""
MAX_NAME = 200
"""Most characters of a name that is part of a file name; file systems take 255 bytes, and
temporaries add 28.
"""
MAX_PATH = 3000
"""Most bytes of a path that a file names; systems take 4,095, including what is added to it."""


def _named(path: str) -> str:
    """Check that a path is short enough and has no NUL, so that looking for the file raises no
    error of the system.
    """
    content = os.fsencode(path)
    if (
        b"\0" in content
        or len(content) > MAX_PATH
        or any(len(name) > 255 for name in content.split(b"/"))
    ):
        raise ValueError(
            f"a path must have at most {MAX_PATH:,} bytes, 255 a name, and no NUL, got "
            f"{path[:40]!r}"
        )
    return path


FilePath = Annotated[str, AfterValidator(_named)]
"""The path of a file or folder that another file names."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def validated(cls: type[T]) -> type[T]:
    """Make a class a record: a frozen dataclass, keyword-only, that converts nothing and knows all
    its keys.

    Other values raise an ``InputError`` that names every one at fault in a line.
    """
    kind: Any = pydantic.dataclasses.dataclass(cls, frozen=True, kw_only=True, config=STRICT)
    fill = kind.__init__

    @wraps(fill)
    def fill_or_refuse(self: T, *unnamed: Any, **values: Any) -> None:
        try:
            fill(self, *unnamed, **values)
        except ValidationError as error:
            presets = "; rs.loss and params.yaml have presets" * hasattr(
                cls, "loss"
            )  # of a training method
            raise InputError(
                f"{cls.__name__} must have valid values, but: {'; '.join(faults(error))}{presets}"
            ) from error

    kind.__init__ = fill_or_refuse
    return cast(type[T], kind)


def read_params(path: Path) -> dict[str, Any]:
    """Read a parameter file as YAML 1.2, as DVC does (``1e-3`` is a number).

    Raises:
        InputError: If the file is missing, is not YAML, or does not hold a mapping.
    """
    if not path.is_file():
        raise InputError(
            f"{path} must be a file, but there is none; run from the project's folder or give "
            "--params"
        )
    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{path} must have at most {MAX_BYTES:,} bytes, got {path.stat().st_size:,}; give "
            "parameters"
        )
    try:
        values = parse(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be text in UTF-8, but: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold a mapping of sections, got {type(values).__name__}")
    return values


def packaged() -> dict[str, Any]:
    """Return the parameters of this project's study, whose file is a part of the package."""
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
    yaml.max_depth, yaml.Composer = MAX_DEPTH, _PlainComposer
    try:
        return yaml.load(text)
    except (
        YAMLError,
        ValueError,
    ) as error:  # ValueError: of a date or a number that there is none of
        raise InputError(
            f"{source} must be YAML, but: {' '.join(str(error).split())[:500]}"
        ) from error


class _PlainComposer(Composer):
    """Refuses aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.parser.check_event(AliasEvent):
            raise YAMLError("it has an alias (*name); write what it stands for")
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
                f"params.yaml must have the key {'.'.join(path[:depth])}; known here: {names}"
            )
        value = value[name]
    return value


def load_section(values: dict[str, Any], key: str, kind: TypeForm[T]) -> T:
    """Return the section at a dotted key as a ``kind``.

    Args:
        values: The parameters, as :func:`read_params` returns them.
        key: ``recipes.DATASET.NAME``, which is merged with ``defaults.NAME``, or another dotted
            key.
        kind: A class under :func:`validated`, or any annotated type.
    Raises:
        InputError: If the section is missing, or as :func:`validate` says.

    >>> values = {"defaults": {"seeds": [0]}, "recipes": {"digits": {}, "svhn": {"seeds": [1, 2]}}}
    >>> load_section(values, "recipes.digits.seeds", list[int]), load_section(values, "recipes.svhn.seeds", list[int])
    ([0], [1, 2])
    """
    keys = layers(key)
    section(values, keys[-1].rpartition(".")[0] or key)  # a data set without a recipe is a mistake
    if not _is_validated(kind):
        nearest = next((layer for layer in reversed(keys) if _has(values, layer)), key)
        return validate(kind, section(values, nearest), nearest)
    merged, origins = merge(values, *keys)
    return validate(kind, merged, key, origins)


def layers(key: str) -> tuple[str, ...]:
    """Return the dotted keys of the sections that are merged into the one at ``key``, the most
    general first.

    >>> layers("recipes.digits.pool"), layers("tables")
    (('defaults.pool', 'recipes.digits.pool'), ('tables',))
    """
    head, *rest = key.split(".")
    return (f"defaults.{rest[1]}", key) if head == "recipes" and len(rest) == 2 else (key,)


def training_layers(dataset: str, method: str) -> tuple[str, ...]:
    """Return the dotted keys of the sections that are merged into the training of a method, the
    most general first.

    What a recipe says of all its trainings takes the place of what the defaults say of those of a
    method.
    """
    sections = (
        "defaults",
        f"defaults.{method}",
        f"recipes.{dataset}",
        f"recipes.{dataset}.{method}",
    )
    return tuple(f"{name}.training" for name in sections)


def merge(
    values: dict[str, Any], *keys: str, sigma: float | None = None, optional: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """Merge sections key by key, later ones over earlier ones; a value that is a mapping is
    replaced whole.

    Args:
        values: The parameters, as :func:`read_params` returns them.
        keys: Dotted keys of the sections. Missing and empty ones count as empty.
        sigma: Noise level, where values may depend on it.
        optional: Whether all of them may be missing.
    Returns:
        The merged values, and for each of them the dotted key of the section that it comes from.
    Raises:
        InputError: If no section is there, one is not a mapping, or a value has none for ``sigma``.

    >>> values = {"defaults": {"macer": {"draws": 16, "lam": {0.25: 12.0, 0.5: 4.0}}}, "recipes": {"svhn": {}}}
    >>> merge(values, *layers("recipes.svhn.macer"), sigma=0.5)
    ({'draws': 16, 'lam': 4.0}, {'draws': 'defaults.macer', 'lam': 'defaults.macer'})
    """
    if not optional and not any(_has(values, key) for key in keys):
        recipe = ".".join(keys[-1].split(".")[:2])
        there = section(values, recipe)
        names = ", ".join(map(str, there if isinstance(there, dict) else []))
        raise InputError(
            f"params.yaml must have the key {' or '.join(keys)}; known in {recipe}: "
            f"{names or 'none'}"
        )
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key in keys:
        layer = section(values, key) if _has(values, key) else None
        layer = for_sigma(layer, sigma, key) if _by_sigma(layer) else layer
        for name, value in validate(dict[str, Any], {} if layer is None else layer, key).items():
            merged[name], origins[name] = value, key
    return {
        name: for_sigma(value, sigma, f"{origins[name]}.{name}") for name, value in merged.items()
    }, origins


def replace_in_recipe(
    values: dict[str, Any], dataset: str, key: str, changes: dict[str, Any]
) -> dict[str, Any]:
    """Return parameters whose section ``recipes.DATASET.KEY`` has ``changes`` over what it says.

    >>> replace_in_recipe({"recipes": {"svhn": {"macer": {}}}}, "svhn", "macer.training", {"epochs": 2})
    {'recipes': {'svhn': {'macer': {'training': {'epochs': 2}}}}}
    """
    changed = copy.deepcopy(values)
    section = changed["recipes"][dataset]
    for name in key.split("."):
        section[name] = validate(
            dict[str, Any], section.get(name) or {}, f"recipes.{dataset}.{key}"
        )
        section = section[name]
    section.update(changes)
    return changed


def merge_recipe(
    values: dict[str, Any], dataset: str, method: str, sigma: float, optional: bool = False
) -> dict[str, tuple[dict[str, Any], dict[str, str]]]:
    """Return what a training of ``method`` at ``sigma`` depends on, by section: ``model``, METHOD
    and ``training``.

    Args:
        values, sigma, optional: As for :func:`merge`, which merges each section.
        dataset: Name of the recipe.
        method: Name of the method.
    Raises:
        InputError: If there is no such recipe, or as :func:`merge` says.
    """
    recipe = f"recipes.{dataset}"
    section(values, recipe)
    sections = {
        "model": merge(values, *layers(f"{recipe}.model"), optional=optional),
        method: merge(values, *layers(f"{recipe}.{method}"), sigma=sigma, optional=optional),
        "training": merge(
            values, *training_layers(dataset, method), sigma=sigma, optional=optional
        ),
    }
    hyperparameters, origins = sections[method]
    hyperparameters.pop("training", None)
    if "training" in origins and not _has(values, where := f"{origins['training']}.training"):
        raise InputError(
            f"params.yaml: training must not be inside a noise level of {method}; give {where}"
        )
    return sections


def _has(values: Any, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def base_dataset(values: dict[str, Any], dataset: str) -> str:
    """Return the data set under a recipe's name: ``cifar10`` for ``cifar10-cpu``."""
    where = f"datasets.{dataset}"
    return validate(
        str, merge(values, where, optional=True)[0].get("dataset") or dataset, f"{where}.dataset"
    )


def validate(
    kind: TypeForm[T], values: Any, where: str, origins: Mapping[str, str] | None = None
) -> T:
    """Validate ``values`` as a ``kind``: a class under :func:`validated`, or any annotated type.

    Args:
        kind: Type to make of the values.
        values: Plain Python values, as :func:`read_params` returns them.
        where: Dotted key of the values, for the message.
        origins: Dotted key of the section of single values, where that is another one, as
            :func:`merge` returns it; or the option of the command line, ``--n``, that a value comes
            from.
    Raises:
        InputError: One line that names every key at fault, what must hold and what came.
    """
    named = _is_validated(kind)
    if named and not (isinstance(values, dict) and all(isinstance(key, str) for key in values)):
        raise InputError(f"params.yaml: {where} must be a mapping of named values, got {values!r}")

    def key(path: list[str]) -> str:
        origin = (origins or {}).get(path[0], where) if path else where
        return origin if origin.startswith("--") else ".".join([origin, *path])

    try:
        if not named:
            return _adapter(cast(Hashable, kind)).validate_python(values, strict=True)
        filled: Any = object.__new__(cast(type[T], kind))
        filled.__init__.__wrapped__(filled, **values)  # whose error says where each value is
        return cast(T, filled)
    except ValidationError as error:
        messages = faults(
            error,
            key,
            {"missing": "; add it", **dict.fromkeys(_UNKNOWN, "; correct its name or remove it")},
        )
        source = "" if all(message.startswith("--") for message in messages) else "params.yaml: "
        raise InputError(source + "; ".join(messages)) from error


def record(kind: TypeForm[T], values: Any, must: str, remedy: str) -> T:
    """Make a record of values of JSON, whose lists stand for tuples too.

    Args:
        kind: A class under :func:`validated`, or any annotated type.
        values: As ``rs.storage.files.read_json`` returns them.
        must: What they must be, for the message.
        remedy: What to do where they are not.
    Raises:
        InputError: One line that names every key at fault, what must hold and what came.

    >>> record(dict[str, Count], {"first": "0"}, "x.json must be numbers", "correct it")
    Traceback (most recent call last):
    rs.errors.InputError: x.json must be numbers, but: first: Input should be a valid integer, got '0'; correct it
    """
    try:
        return _adapter(cast(Hashable, kind)).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise InputError(f"{must}, but: {'; '.join(faults(error))}; {remedy}") from error


@cache  # to make one takes longer than to read a file
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _is_validated(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def faults(
    error: ValidationError,
    key: Callable[[list[str]], str] = ".".join,
    remedies: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return what is at fault: every key, or the first ones and how many more, above
    :data:`MAX_FAULTS`.

    Args:
        error: Of pydantic.
        key: From the names that lead to a value to its key in messages.
        remedies: What to do about some kinds of faults, by pydantic's name of them.
    """
    shown = [
        _fault(fault, key) + remedies.get(fault["type"], "")
        for fault in error.errors()[:MAX_FAULTS]
    ]
    more = error.error_count() - len(shown)
    return [*shown, f"and {more:,} more values are at fault"] if more else shown


def _fault(fault: Any, key_of: Callable[[list[str]], str]) -> str:
    key = key_of(
        [str(name) for name in fault["loc"] if name not in ("FittedWeights", "FittedThresholds")]
    )
    match fault["type"]:
        case "missing":
            return f"{key} is missing"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"{key} is not a known key"
    must = fault["msg"].removeprefix("Value error, ")
    least = fault.get("ctx", {}).get("ge")
    if isinstance(
        least, float
    ):  # which is written without an exponent, 1e-200 as two hundred zeros
        must = f"{must.rpartition(' ')[0]} {least:g}"
    value = getattr(fault["input"], "kwargs", fault["input"])  # of a whole dataclass, its values
    came = "" if ", got " in must else f", got {value!r:.{MAX_SHOWN}}"
    return f"{key}: {must}{came}" if key else f"{must}{came}"


def check_sigma(sigma: Any, name: str = "sigma") -> float:
    """Return a noise std for images in [0, 1]; refuse one that was probably given on the scale of
    8-bit pixels.

    Args:
        sigma: What was given.
        name: What messages call it.
    Raises:
        InputError: If it is not a number from :data:`MIN_SIGMA` to :data:`MAX_SIGMA`.
    """
    is_number = isinstance(sigma, Real) and not isinstance(sigma, bool)
    if not is_number or not MIN_SIGMA <= sigma < math.inf:
        raise InputError(
            f"{name} must be a positive number, got {sigma!r}; it is the std of the noise, in "
            "pixels of [0, 1], at "
            f"least {MIN_SIGMA:g}"
        )
    if sigma > MAX_SIGMA:
        raise InputError(
            f"{name} is in pixels of [0, 1] and must be at most {MAX_SIGMA:g}, got {sigma:g}; "
            f"did you mean {sigma:g}/255 = {sigma / 255:.3g}?"
        )
    return sigma


def for_sigma(values: Any, sigma: float | None, where: str, nearest: bool = False) -> Any:
    """Replace every mapping from noise levels to values by its value at ``sigma``, at any depth.

    A mapping whose keys are all numbers is one from noise levels; ``{0.25: 1.0, 0.5: 2.0}`` at 0.5
    is 2.0. Without a ``sigma`` nothing is replaced. With ``nearest`` the nearest level by ratio
    counts where ``sigma`` has no value.

    Raises:
        InputError: If ``sigma`` is not positive and finite, or such a mapping has no value for it.

    >>> for_sigma({"epsilon": {0.25: 1.0, 0.5: 2.0}, "draws": 4}, 0.5, "advmacer")
    {'epsilon': 2.0, 'draws': 4}
    """
    if sigma is not None and not 0 < sigma < math.inf:
        raise InputError(
            f"sigma must be positive and finite, got {sigma}; it is the noise std in pixels of [0, "
            "1]"
        )
    if not isinstance(values, dict) or sigma is None:
        return values
    if not _by_sigma(values):
        return {
            key: for_sigma(value, sigma, f"{where}.{key}", nearest) for key, value in values.items()
        }
    if nearest:
        return values[min(values, key=lambda level: abs(math.log(level / sigma)))]
    if sigma not in values:
        levels = ", ".join(map(str, values))
        raise InputError(
            f"params.yaml: {where} must have a value for sigma {sigma}; it has {levels}"
        )
    return values[sigma]


def _by_sigma(values: Any) -> bool:
    """Return whether it is a mapping from noise levels."""
    return (
        isinstance(values, dict)
        and bool(values)
        and all(isinstance(key, int | float) for key in values)
    )
