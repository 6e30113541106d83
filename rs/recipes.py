"""Recipes of ``params.yaml``: what a section inherits, and its values at a noise level."""

from __future__ import annotations

import copy
import math
from functools import partial as bind
from typing import TYPE_CHECKING, Any, TypeVar

from rs.errors import InputError, check_choice, did_you_mean
from rs.params import is_record, packaged, section, validate

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")


def load_section(values: dict[str, Any], key: str, kind: TypeForm[T]) -> T:
    """Return the section at a dotted key as a ``kind``.

    Args:
        values: The parameters, as :func:`rs.params.read_params` returns them.
        key: Dotted key; ``recipes.DATASET.NAME`` inherits as :func:`section_chain` says.
        kind: A class under :func:`rs.params.validated`, or any annotated type.
    Raises:
        InputError: If the section is missing, or as :func:`rs.params.validate` says.

    >>> values = {"defaults": {"seeds": [0]}, "recipes": {"digits": {}, "svhn": {"seeds": [1, 2]}}}
    >>> load_section(values, "recipes.digits.seeds", list[int])
    [0]
    >>> load_section(values, "recipes.svhn.seeds", list[int])
    [1, 2]
    """
    parent = key.rpartition(".")[0]
    section(values, parent or key)  # a data set without a recipe is a mistake
    if is_record(kind):
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
            recipes = list(values["recipes"])
            raise InputError(
                f"params.yaml: {where} must be a recipe, one of {', '.join(recipes)}; "
                f"got {base!r}{did_you_mean(base, recipes)}"
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
        values: The parameters, as :func:`rs.params.read_params` returns them.
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
        recipe_sections = section(values, recipe)
        names = (
            ", ".join(map(str, recipe_sections))
            if isinstance(recipe_sections, dict) and recipe_sections
            else "none"
        )
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
    """Return what a training run of ``method`` at ``sigma`` depends on: its three merged sections.

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


def over_packaged(values: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with the defaults and recipes of the package below their own recipes.

    Parameters with ``defaults`` of their own stay as they are.

    Raises:
        InputError: If a recipe has a key that ``defaults`` does not have, which nothing would read.

    >>> values = over_packaged({"recipes": {"mine": {"base": "finetune"}}})
    >>> values["recipes"]["mine"], "training" in values["defaults"]
    ({'base': 'finetune'}, True)
    """
    user_recipes = values.get("recipes")
    if not isinstance(user_recipes, dict):
        return values
    if "defaults" not in values:
        package = packaged()
        recipes = package["recipes"] | user_recipes
        values = values | {"defaults": package["defaults"], "recipes": recipes}
    allowed = ["base", *validate(dict[str, Any], values["defaults"], "defaults")]
    for name, recipe in user_recipes.items():
        for key in recipe if isinstance(recipe, dict) else ():
            check_choice(f"params.yaml: a key of recipes.{name}", key, allowed)
    return values


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


def base_dataset(values: dict[str, Any], dataset: str) -> str:
    """Return the data set under a recipe's name: ``cifar10`` for ``cifar10-cpu``."""
    where = f"datasets.{dataset}"
    settings, _ = merge(values, where, optional=True)
    return validate(str, settings.get("dataset") or dataset, f"{where}.dataset")


def for_sigma(values: Any, sigma: float | None, where: str, nearest: bool = False) -> Any:
    """Replace every mapping from noise levels to values by its value at ``sigma``, at any depth.

    A mapping whose keys are all numbers is one from noise levels. Without a ``sigma`` nothing is
    replaced. With ``nearest``, the nearest level by ratio counts where ``sigma`` has no value.

    Raises:
        InputError: If ``sigma`` or a level is not positive and finite, or such a mapping has no
            value for it.

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
    if wrong := [level for level in values if not 0 < level < math.inf]:
        raise InputError(
            f"params.yaml: {where} must have positive, finite noise levels, got {wrong[0]}; "
            "correct it"
        )
    if nearest:
        return values[min(values, key=lambda level: abs(math.log(level / sigma)))]
    if sigma not in values:
        levels = ", ".join(map(str, values))
        raise InputError(
            f"params.yaml: {where} must have a value for sigma {sigma}; it has {levels}"
        )
    return values[sigma]


def _has(values: Any, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _by_sigma(values: Any) -> bool:
    """Return whether ``values`` is a mapping from noise levels."""
    if not isinstance(values, dict) or not values:
        return False
    return all(isinstance(key, int | float) for key in values)
