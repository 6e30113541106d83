"""Reading and validating ``params.yaml``, where every number of the pipeline comes from."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable, Hashable, Mapping
from functools import cache, wraps
from functools import partial as bind
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
Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]
"""Channels, height or width of an image."""
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
            if hasattr(cls, "loss"):  # a training method
                message += "; rs.loss and params.yaml have presets"
            raise InputError(message) from error

    kind.__init__ = init_or_refuse
    return cast(type[T], kind)


PRETRAINING = "gaussian"
"""The method of the short trainings that come before another one (``rs.training.pretraining``)."""


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
        raise InputError(f"{path} must be text in UTF-8, but: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold a mapping of sections, got {type(values).__name__}")
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
        raise InputError(f"{source} must be YAML, but: {message[:500]}") from error


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
        key: Dotted key; ``recipes.DATASET.NAME`` inherits as :func:`section_chain` says.
        kind: A class under :func:`validated`, or any annotated type.
    Raises:
        InputError: If the section is missing, or as :func:`validate` says.

    >>> values = {"defaults": {"seeds": [0]}, "recipes": {"digits": {}, "svhn": {"seeds": [1, 2]}}}
    >>> load_section(values, "recipes.digits.seeds", list[int])
    [0]
    >>> load_section(values, "recipes.svhn.seeds", list[int])
    [1, 2]
    """
    parent = key.rpartition(".")[0]
    section(values, parent or key)  # a data set without a recipe is a mistake
    if _is_record(kind):
        merged, origins = merge(values, key)
        return validate(kind, merged, key, origins)
    nearest = key
    for source in section_chain(values, key):
        if _has(values, source):
            nearest = source
    return validate(kind, section(values, nearest), nearest)


def section_chain(values: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return the keys of the sections that are merged into the one at ``key``, most general first.

    A section of a recipe inherits from ``defaults``, then from the recipe's ``base``. The training
    of a method inherits at each step from the training of all methods first. Other sections inherit
    from nothing.

    Raises:
        InputError: If a base is not a recipe, or a recipe is its own base.

    >>> values = {"recipes": {"digits": {}, "mine": {"base": "digits"}}}
    >>> section_chain(values, "recipes.mine.pool")
    ('defaults.pool', 'recipes.digits.pool', 'recipes.mine.pool')
    >>> section_chain(values, "recipes.digits.macer.training")[:3]
    ('defaults.training', 'defaults.macer.training', 'recipes.digits.training')
    """
    head, *names = key.split(".")
    if head != "recipes" or not names:
        return (key,)
    dataset, *path = names
    chain = []
    for source in ("defaults", *recipe_chain(values, dataset)):
        if path[1:] == ["training"]:
            chain.append(f"{source}.training")
        chain.append(".".join([source, *path]))
    return tuple(chain)


def recipe_chain(values: dict[str, Any], dataset: str) -> tuple[str, ...]:
    """Return the keys of a recipe and of the recipes that it is based on, most general first.

    Raises:
        InputError: If a base is not a recipe, or a recipe is its own base.

    >>> recipe_chain({"recipes": {"digits": {}, "mine": {"base": "digits"}}}, "mine")
    ('recipes.digits', 'recipes.mine')
    """
    chain = [f"recipes.{dataset}"]
    while _has(values, f"{chain[0]}.base"):
        where = f"{chain[0]}.base"
        base = validate(str, section(values, where), where)
        if not _has(values, f"recipes.{base}"):
            known = list(values["recipes"])
            raise InputError(
                f"params.yaml: {where} must be a recipe, one of {', '.join(known)}; "
                f"got {base!r}{did_you_mean(base, known)}"
            )
        if f"recipes.{base}" in chain:
            raise InputError(
                f"params.yaml: {where} must not lead back to a recipe that is based on it, "
                f"got {base!r}; name another recipe or remove the base"
            )
        chain.insert(0, f"recipes.{base}")
    return tuple(chain)


def merge(
    values: dict[str, Any],
    key: str,
    *,
    sigma: float | None = None,
    nearest: bool = False,
    optional: bool = False,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Merge the sections of :func:`section_chain` value by value, later ones over earlier ones.

    A mapping from noise levels over another replaces the values of its own levels; any other
    mapping is replaced as a whole.

    Args:
        values: The parameters, as :func:`read_params` returns them.
        key: Dotted key of the section. Missing and empty sections of its chain count as empty.
        sigma: Noise level, where values may depend on it.
        nearest: Whether the nearest level by ratio counts where ``sigma`` has no value.
        optional: Whether all sections of the chain may be missing.
    Returns:
        The merged values, and for each of them the dotted key of the section that it comes from.
    Raises:
        InputError: If no section is there, one is not a mapping, or a value has none for ``sigma``.

    >>> lam = {0.25: 12.0, 0.5: 4.0}
    >>> recipes = {"svhn": {"macer": {"lam": {0.5: 1.0}}}}
    >>> values = {"defaults": {"macer": {"draws": 16, "lam": lam}}, "recipes": recipes}
    >>> merge(values, "recipes.svhn.macer")[0]
    {'draws': 16, 'lam': {0.25: 12.0, 0.5: 1.0}}
    >>> merge(values, "recipes.svhn.macer", sigma=0.5)
    ({'draws': 16, 'lam': 1.0}, {'draws': 'defaults.macer', 'lam': 'recipes.svhn.macer'})
    """
    chain = section_chain(values, key)
    present = [source for source in chain if _has(values, source)]
    if not present and not optional:
        recipe = ".".join(key.split(".")[:2])
        known = section(values, recipe)
        names = ", ".join(map(str, known)) if isinstance(known, dict) and known else "none"
        raise InputError(
            f"params.yaml must have the key {' or '.join(chain)}; known in {recipe}: {names}"
        )
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source in present:
        layer = section(values, source)
        if layer is None:
            continue
        if _by_sigma(layer):
            layer = for_sigma(layer, sigma, source, nearest)
        for name, value in validate(dict[str, Any], layer, source).items():
            inherited = merged.get(name)
            if _by_sigma(value) and _by_sigma(inherited):
                value = inherited | value
            merged[name] = value
            origins[name] = source
    for name, source in origins.items():
        merged[name] = for_sigma(merged[name], sigma, f"{source}.{name}", nearest)
    return merged, origins


def merge_recipe(
    values: dict[str, Any],
    dataset: str,
    method: str,
    sigma: float,
    *,
    nearest: bool = False,
    optional: bool = False,
) -> dict[str, tuple[dict[str, Any], dict[str, str]]]:
    """Return what a training of ``method`` at ``sigma`` depends on: its three merged sections.

    Args:
        values, sigma, nearest, optional: As for :func:`merge`, which merges each section.
        dataset: Name of the recipe.
        method: Name of the method.
    Returns:
        By name, ``model``, METHOD and ``training``: what :func:`merge` returns.
    Raises:
        InputError: If there is no such recipe, or as :func:`merge` says.
    """
    recipe = f"recipes.{dataset}"
    section(values, recipe)
    at_sigma = bind(merge, values, sigma=sigma, nearest=nearest, optional=optional)
    hyperparameters, origins = at_sigma(f"{recipe}.{method}")
    hyperparameters.pop("training", None)
    if "training" in origins and not _has(values, where := f"{origins['training']}.training"):
        raise InputError(
            f"params.yaml: training must not be inside a noise level of {method}; give {where}"
        )
    return {
        "model": merge(values, f"{recipe}.model", optional=optional),
        method: (hyperparameters, origins),
        "training": at_sigma(f"{recipe}.{method}.training"),
    }


def replace_in_recipe(
    values: dict[str, Any], dataset: str, key: str, changes: dict[str, Any]
) -> dict[str, Any]:
    """Return parameters whose section ``recipes.DATASET.KEY`` has ``changes`` over its values.

    >>> values = {"recipes": {"svhn": {"macer": {}}}}
    >>> replace_in_recipe(values, "svhn", "macer.training", {"epochs": 2})
    {'recipes': {'svhn': {'macer': {'training': {'epochs': 2}}}}}
    """
    changed = copy.deepcopy(values)
    recipe_section = changed["recipes"][dataset]
    for name in key.split("."):
        inner = recipe_section.get(name) or {}
        recipe_section[name] = validate(dict[str, Any], inner, f"recipes.{dataset}.{key}")
        recipe_section = recipe_section[name]
    recipe_section.update(changes)
    return changed


def _has(values: Any, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def base_dataset(values: dict[str, Any], dataset: str) -> str:
    """Return the data set under a recipe's name: ``cifar10`` for ``cifar10-cpu``."""
    where = f"datasets.{dataset}"
    settings, _ = merge(values, where, optional=True)
    return validate(str, settings.get("dataset") or dataset, f"{where}.dataset")


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
            :func:`merge` returns it; or the option of the command line, ``--n``.
        source: The file that the values come from, for the message.
    Raises:
        InputError: One line that names every wrong key, what must hold and what was found.
    """
    is_record = _is_record(kind)
    if is_record and not (isinstance(values, dict) and all(isinstance(key, str) for key in values)):
        raise InputError(
            f"{source}: {where or 'the file'} must be a mapping of named values, got {values!r}"
        )

    def key(path: list[str]) -> str:
        origin = where
        if origins and path:
            origin = origins.get(path[0], where)
        if origin.startswith("--"):
            return origin
        return ".".join(filter(None, [origin, *path]))

    try:
        if not is_record:
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


def _is_record(kind: Any) -> bool:
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


def check_sigma(sigma: Any, name: str = "sigma") -> float:
    """Return a noise std for images in [0, 1]; refuse one that is probably on the 0-255 scale.

    Args:
        sigma: What was given.
        name: What messages call it.
    Raises:
        InputError: If it is not a number from :data:`MIN_SIGMA` to :data:`MAX_SIGMA`.
    """
    is_number = isinstance(sigma, Real) and not isinstance(sigma, bool)
    if not is_number or not MIN_SIGMA <= sigma < math.inf:
        raise InputError(
            f"{name} must be a positive number, got {sigma!r}; it is the std of the noise, "
            f"in pixels of [0, 1], at least {MIN_SIGMA:g}"
        )
    if sigma > MAX_SIGMA:
        raise InputError(
            f"{name} is in pixels of [0, 1] and must be at most {MAX_SIGMA:g}, got {sigma:g}; "
            f"did you mean {sigma:g}/255 = {sigma / 255:.3g}?"
        )
    return sigma


def for_sigma(values: Any, sigma: float | None, where: str, nearest: bool = False) -> Any:
    """Replace every mapping from noise levels to values by its value at ``sigma``, at any depth.

    A mapping whose keys are all numbers is one from noise levels. Without a ``sigma`` nothing is
    replaced. With ``nearest``, the nearest level by ratio counts where ``sigma`` has no value.

    Raises:
        InputError: If ``sigma`` is not positive and finite, or such a mapping has no value for it.

    >>> for_sigma({"epsilon": {0.25: 1.0, 0.5: 2.0}, "draws": 4}, 0.5, "advmacer")
    {'epsilon': 2.0, 'draws': 4}
    """
    if sigma is not None and not 0 < sigma < math.inf:
        raise InputError(
            f"sigma must be positive and finite, got {sigma}; "
            "it is the noise std in pixels of [0, 1]"
        )
    if not isinstance(values, dict) or sigma is None:
        return values
    if not _by_sigma(values):
        at_sigma = {}
        for key, value in values.items():
            at_sigma[key] = for_sigma(value, sigma, f"{where}.{key}", nearest)
        return at_sigma
    if nearest:
        return values[min(values, key=lambda level: abs(math.log(level / sigma)))]
    if sigma not in values:
        levels = ", ".join(map(str, values))
        raise InputError(
            f"params.yaml: {where} must have a value for sigma {sigma}; it has {levels}"
        )
    return values[sigma]


def _by_sigma(values: Any) -> bool:
    """Return whether ``values`` is a mapping from noise levels."""
    if not isinstance(values, dict) or not values:
        return False
    return all(isinstance(key, int | float) for key in values)
