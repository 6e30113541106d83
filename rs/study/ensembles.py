"""The ensembles that the parameters declare: their members, and how members are combined.

combinations:
  average: {rule: softmax, weights: equal, scope: global}
ensembles:
  advmacer x3: {members: {advmacer: 3}, combinations: [average]}
  advmacer 0 + smoothadv 1-2: {members: {advmacer: [0], smoothadv: [1, 2]}, combinations: [mme]}

The key of an ensemble is its name in tables. A number asks for every ensemble of that many trained
members, whose seeds all differ; a list of seeds asks for one ensemble.

From the declaration to a table, with seeds 0 to 2 and two noise levels:

1. Here, ``declared_ensembles`` turns the entry ``advmacer x3`` into one
   :class:`EnsembleDeclaration` with the slug ``advmacer-0-1-2.average``.
2. The slug is the name of its files (``rs.study.layout``). The stage ``ensemble`` writes
   ``ensembles/DATASET/0.25/SLUG.json``, ``weights`` writes ``weights/DATASET/0.25/SLUG.json`` if
   something is fitted, and ``certify_ensembles`` its rows, ``results/DATASET/0.25/pool/SLUG.tsv``.
3. ``StudyFiles.read_ensemble`` (``rs.reporting.load``) reads these rows as a result whose name is
   ``StudyFiles.name_of``: that of the entry, with any combination other than the default one
   (``tables.combination``) in parentheses. Tables group results by name: one line ``advmacer x3``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, product
from itertools import combinations as combinations_of
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from rs.errors import InputError, did_you_mean
from rs.params import MAX_NAME, Count, NonNegativeCount, validate, validated
from rs.recipes import load_section

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
"""A name that is part of file names."""

BoundWeights = Literal["optimal", "printed"]
"""Weights of the paper's bound: of least variance, or, for two members, by the printed formula."""

NamedWeights = Literal["equal", BoundWeights, "radius"]
"""Equal weights, weights of the paper's bound, or weights of the largest average radius."""

BOUND_WEIGHTS = get_args(BoundWeights)

Share = Annotated[float, Field(ge=0, lt=1)]

Members = tuple[tuple[str, int], ...]
"""Training method and seed of each member."""


@validated
class Combination:
    """How members are combined: an entry of ``combinations``, and part of an ensemble's file.

    ``rs.ensemble.rules`` says which rules there are, and which settings each of them needs.
    """

    rule: str  # key of ``rs.ensemble.rules.RULES``
    scope: Literal["global", "noisy-input", "per-image"]  # what the weights depend on
    weights: NamedWeights | None = None  # of averages
    # scope per-image: the class whose margins choose the weights
    target: Literal["predicted", "label"] | None = None
    agree: Count | None = None  # consensus: how many of the first members must agree
    thresholds: Literal["fitted"] | None = None  # cascade: leads at which 1, 2, ... members decide
    # fitted: share of the samples that may be decided differently than by all members
    share: Share | None = None

    @property
    def solved(self) -> bool:
        """Whether the stage ``weights`` must fit something: weights or thresholds."""
        return self.weights_solved or self.thresholds is not None

    @property
    def weights_solved(self) -> bool:
        """Whether the stage ``weights`` must fit weights."""
        return self.weights not in (None, "equal")

    def check_members(self, count: int) -> None:
        """Check that an ensemble can have ``count`` members.

        Raises:
            ValueError: If not.
        """
        if self.weights == "printed" and count != 2:
            raise ValueError(f"the printed weights must be of 2 members, got {count}; use optimal")
        if self.agree is not None and self.agree > count:
            raise ValueError(
                f"agree must be at most the number of members, {count}, got {self.agree}"
            )
        if self.thresholds is not None and count < 2:
            raise ValueError(
                f"a cascade must have at least 2 members to fit thresholds of, got {count}"
            )


@validated
class EnsembleDeclaration:
    """One ensemble with one combination, at every noise level: a classifier of the study."""

    name: str  # of the entry; ensembles that differ only in their seeds share it
    members: Members
    key: str  # of the combination
    combination: Combination

    @property
    def slug(self) -> str:
        """Name in file names.

        >>> mme = Combination(rule="mme", scope="noisy-input")
        >>> members = (("advmacer", 0), ("macer", 0), ("macer", 1))
        >>> name = "advmacer x1 + macer x2"
        >>> EnsembleDeclaration(name=name, members=members, key="mme", combination=mme).slug
        'advmacer-0+macer-0-1.mme'
        """
        name = members_text(self.members)
        name = name.replace(" + ", "+").replace(" ", "-")
        return f"{name}.{self.key}"


def composition(members: Sequence[tuple[str, int]]) -> str:
    """Return the methods of members, and how many members are of each.

    >>> composition([("advmacer", 0), ("macer", 0), ("macer", 2)])
    'advmacer x1 + macer x2'
    """
    counts = Counter(method for method, _ in members)
    return " + ".join(f"{method} x{count}" for method, count in counts.items())


def members_text(members: Sequence[tuple[str, int]]) -> str:
    """Return the methods of members, and the seeds of each.

    >>> members_text([("advmacer", 0), ("macer", 0), ("macer", 2)])
    'advmacer 0 + macer 0-2'
    """
    seeds: dict[str, list[str]] = {}
    for method, seed in members:
        seeds.setdefault(method, []).append(str(seed))
    return " + ".join(f"{method} {'-'.join(numbers)}" for method, numbers in seeds.items())


TRAINED = {"methods": "seeds", "members": "member_seeds"}
"""Lists of methods of the grid, and the list of the seeds of each."""

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+ -]+$")]
_Seeds = dict[Key, Annotated[list[NonNegativeCount], Field(min_length=1)]]
_Numbers = dict[Key, Count]


@validated
class _Entry:
    # of each method: a list of seeds, or a number of members
    members: Annotated[dict[str, Any], Field(min_length=1)]
    combinations: Annotated[list[str], Field(min_length=1)]


def declared_combinations(values: Mapping[str, Any]) -> dict[str, Combination]:
    """Return the section ``combinations`` by key.

    Raises:
        InputError: If it is missing, or an entry is invalid; names the entry.
    """
    sections = load_section(dict(values), "combinations", dict[Key, Any])
    return {
        key: validate(Combination, fields, f"combinations.{key}")
        for key, fields in sections.items()
    }


def declared_ensembles(values: Mapping[str, Any]) -> list[EnsembleDeclaration]:
    """Return each of ``ensembles`` with each of its ``combinations``; none without this section.

    Raises:
        InputError: If an entry is invalid, names an unknown combination or one twice, asks for a
            method or for more seeds than the grid trains, makes too long a file name, or has the
            name of a method; or if a list of the grid is invalid.

    >>> macers = {"members": {"macer": 2}, "combinations": ["mme"]}
    >>> values = {"methods": ["macer"], "seeds": [0, 1, 2], "ensembles": {"macer x2": macers},
    ...           "combinations": {"mme": {"rule": "mme", "scope": "noisy-input"}}}
    >>> for ensemble in declared_ensembles(values): print(ensemble.name, ensemble.members)
    macer x2 (('macer', 0), ('macer', 1))
    macer x2 (('macer', 0), ('macer', 2))
    macer x2 (('macer', 1), ('macer', 2))
    """
    entries = validate(dict[_Name, dict[str, Any]], values.get("ensembles") or {}, "ensembles")
    combinations = declared_combinations(values) if entries else {}
    seeds_of = _trained_seeds(values)
    declarations = []
    for name, fields in entries.items():
        where = f"ensembles.{name}"
        entry = validate(_Entry, fields, where)
        if name in seeds_of:
            raise InputError(f"params.yaml: {where} must not have the name of a method")
        if len(set(entry.combinations)) < len(entry.combinations):
            raise InputError(
                f"params.yaml: {where}.combinations must be different, got {entry.combinations}"
            )
        choices = _member_choices(entry, seeds_of, where)
        for key in entry.combinations:
            combination = _checked_combination(combinations, key, len(choices[0]), where)
            for members in choices:
                declaration = EnsembleDeclaration(
                    name=name, members=members, key=key, combination=combination
                )
                if len(declaration.slug) > MAX_NAME:
                    raise InputError(
                        f"params.yaml: {where} must make file names of at most {MAX_NAME} "
                        f"characters, got {declaration.slug}; declare fewer members, or a shorter "
                        "combination"
                    )
                declarations.append(declaration)
    return declarations


def _member_choices(
    entry: _Entry, seeds_of: Mapping[str, Sequence[int]], where: str
) -> list[Members]:
    """Return the members of each ensemble of an entry.

    Args:
        entry: The entry of ``ensembles``.
        seeds_of: The seeds that the grid trains, by method.
        where: Key of the entry, for messages.
    """
    if any(isinstance(seeds, list) for seeds in entry.members.values()):
        listed = validate(_Seeds, entry.members, f"{where}.members")
        members = tuple((method, seed) for method, seeds in listed.items() for seed in seeds)
        if len(set(members)) < len(members):
            raise InputError(f"params.yaml: {where}.members must name each seed once, got {listed}")
        return [members]
    counts = validate(_Numbers, entry.members, f"{where}.members")
    for method in counts:
        if method not in seeds_of:
            raise InputError(
                f"params.yaml: {where}.members must be among {', '.join(seeds_of)}; got {method}"
                f"{did_you_mean(method, seeds_of) or '; add it to members'}"
            )
    choices_of_methods = []
    for method, count in counts.items():
        models = [(method, seed) for seed in seeds_of[method]]
        choices_of_methods.append(combinations_of(models, count))
    choices = []
    for choice in product(*choices_of_methods):
        members = tuple(chain.from_iterable(choice))
        seeds = {seed for _, seed in members}
        if len(seeds) == len(members):  # models of one seed start from the same weights
            choices.append(members)
    if not choices:
        raise InputError(
            f"params.yaml: {where}.members must leave each member its own seed, but the grid has "
            f"too few for {counts}; add the methods to members, and further member_seeds"
        )
    return choices


def _checked_combination(
    combinations: Mapping[str, Combination], key: str, count: int, where: str
) -> Combination:
    """Return the combination of a key, which must exist and suit ``count`` members."""
    if key not in combinations:
        names = ", ".join(combinations)
        raise InputError(f"params.yaml: {where}.combinations must be among {names}; got {key!r}")
    try:
        combinations[key].check_members(count)
    except ValueError as error:
        raise InputError(f"params.yaml: {where}, combination {key}: {error}") from error
    return combinations[key]


def _trained_seeds(values: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the seeds that the grid trains, by method, in ascending order."""
    trained: dict[str, set[int]] = {}
    for methods_key, seeds_key in TRAINED.items():
        methods = validate(list[str], values.get(methods_key) or [], methods_key)
        seeds = validate(list[NonNegativeCount], values.get(seeds_key) or [], seeds_key)
        for method in methods:
            trained.setdefault(method, set()).update(seeds)
    return {method: sorted(seeds) for method, seeds in trained.items()}
