"""The ensembles that the parameters declare: their members, and how members are combined.

combinations: {average: {rule: softmax, weights: equal, scope: global}, ...}
ensembles: {advmacer x3: {members: {advmacer: 3}, combinations: [average, ...]},
            advmacer 0 + smoothadv 1-2: {members: {advmacer: [0], smoothadv: [1, 2]}, combinations: [mme, ...]}, ...}

The key of an ensemble is its name in tables. Numbers ask for every ensemble of so many trained
members, with a seed of its own each; seeds ask for one ensemble.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations as combinations_of
from itertools import product
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from rs.errors import InputError, did_you_mean
from rs.params import MAX_NAME, Count, NonNegativeCount, load_section, merge, validate, validated

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
"""A name that is part of names of files."""

BoundWeights = Literal["optimal", "printed"]
"""Weights of the paper's bound: of least variance, or by the printed form, for two members."""

NamedWeights = Literal["equal", BoundWeights, "radius"]
"""Equal weights, and those that are solved for: of the paper's bound, or of the largest average
certified radius.
"""

BOUND_WEIGHTS = get_args(BoundWeights)

Choice = Annotated[dict[Literal["choose"], Count], Field(min_length=1)]
"""``{"choose": n}``: weights that choose n members, with replacement, by the largest average
certified radius.
"""


MAX_SET_MEMBERS = 12
"""Largest number of members of a set of weights.

The box of L weights that sum to 1 has up to L choose L / 2 times L / 2 vertices.
"""


@validated
class Combination:
    """How members are combined: an entry of ``combinations`` in params.yaml, and part of an
    ensemble's file.

    Which rules there are, and which parts each needs, ``rs.ensemble.rules`` says.
    """

    rule: str  # key of ``rs.ensemble.rules.RULES``
    scope: Literal["global", "noisy-input", "set", "per-image"]  # what the weights depend on
    weights: NamedWeights | Choice | None = None  # of averages
    target: Literal["predicted", "label"] | None = (
        None  # scope per-image: the class whose margins choose the weights
    )
    agree: Count | None = None  # consensus: so many of the first members must agree
    low: Annotated[float, Field(ge=0, le=1)] | None = (
        None  # scope set: every weight is at least this; scope per-image:
    )
    high: Annotated[float, Field(ge=0, le=1)] | None = (
        None  # and at most this; so clipped, if they are given
    )
    thresholds: Literal["fitted"] | None = None  # cascade: leads at which 1, 2, ... members decide
    share: Annotated[float, Field(ge=0, lt=1)] | None = (
        None  # fitted: of draws decided otherwise than by all members
    )

    @property
    def solved(self) -> bool:
        """Whether weights, or thresholds, are solved for: once for all images, or weights image by
        image.
        """
        return self.weights_solved or self.thresholds is not None

    @property
    def weights_solved(self) -> bool:
        """Whether weights are solved for."""
        return self.weights not in (None, "equal")

    @property
    def chosen(self) -> int | None:
        """How many members its weights choose; ``None`` if they do not choose."""
        return self.weights["choose"] if isinstance(self.weights, dict) else None

    def check_members(self, count: int) -> None:
        """Check that there can be an ensemble of ``count`` members.

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
        if self.scope == "set" and count > MAX_SET_MEMBERS:
            raise ValueError(
                f"a set of weights must be of at most {MAX_SET_MEMBERS} members, got {count}; use "
                "fewer"
            )
        low, high = self.low, self.high
        if low is not None and high is not None and not count * low <= 1 <= count * high:
            raise ValueError(
                f"low and high must leave room for {count} weights that sum to 1, got {low} and "
                f"{high}"
            )


@validated
class EnsembleDeclaration:
    """One ensemble with one combination: a classifier that the parameters declare, at every noise
    level.
    """

    name: str  # in tables; ensembles that differ in their seeds alone can share one
    members: tuple[tuple[str, int], ...]  # training method and seed of each
    key: str  # of the combination
    combination: Combination

    def label(self, default: str) -> str:
        """Return its name in tables, in which the combination ``default`` goes without saying."""
        return self.name if self.key == default else f"{self.name} ({self.key})"

    @property
    def kind(self) -> str:
        """What it has in common with ensembles of other seeds: :func:`kind_of` its members."""
        return kind_of(self.members)

    @property
    def slug(self) -> str:
        """Name in file names.

        >>> mme = Combination(rule="mme", scope="noisy-input")
        >>> members = (("advmacer", 0), ("macer", 0), ("macer", 1))
        >>> EnsembleDeclaration(name="advmacer x1 + macer x2", members=members, key="mme", combination=mme).slug
        'advmacer-0+macer-0-1.mme'
        """
        return f"{trained_as(self.members).replace(' + ', '+').replace(' ', '-')}.{self.key}"


def kind_of(members: Sequence[tuple[str, int]]) -> str:
    """Return which methods members are of, and how many of each: what ensembles of other seeds have
    in common.

    >>> kind_of([("advmacer", 0), ("macer", 0), ("macer", 2)])
    'advmacer x1 + macer x2'
    """
    return " + ".join(
        f"{method} x{count}" for method, count in Counter(method for method, _ in members).items()
    )


def trained_as(members: Sequence[tuple[str, int]]) -> str:
    """Return which trained models members are: their methods and seeds.

    >>> trained_as([("advmacer", 0), ("macer", 0), ("macer", 2)])
    'advmacer 0 + macer 0-2'
    """
    seeds: dict[str, list[str]] = {}
    for method, seed in members:
        seeds.setdefault(method, []).append(str(seed))
    return " + ".join(f"{method} {'-'.join(numbers)}" for method, numbers in seeds.items())


_TRAINED = (
    ("methods", "seeds"), ("methods_with_targets", "seeds"), ("members", "member_seeds"),
    ("warm_start.methods", "warm_start.seeds"),
)  # fmt: skip
"""Sections of the grid that list methods, and those with their seeds."""

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+ -]+$")]
_Seeds = dict[Key, Annotated[list[NonNegativeCount], Field(min_length=1)]]
_Numbers = dict[Key, Count]


@validated
class _Entry:
    members: Annotated[
        dict[str, Any], Field(min_length=1)
    ]  # seeds of each method, or a number for each
    combinations: Annotated[list[str], Field(min_length=1)]


def declared_combinations(values: Mapping[str, Any]) -> dict[str, Combination]:
    """Return ``combinations`` by key.

    Raises:
        InputError: If there is no such key, or an entry is not one; names it.
    """
    sections = load_section(dict(values), "combinations", dict[Key, Any])
    return {
        key: validate(Combination, fields, f"combinations.{key}")
        for key, fields in sections.items()
    }


def declared(values: Mapping[str, Any]) -> list[EnsembleDeclaration]:
    """Return each of ``ensembles`` with each of its ``combinations``; none if there is no such key.

    Raises:
        InputError: If an entry is not one, names a combination that there is none of, or one twice,
            asks for a method or for more seeds than the grid trains, makes too long a name of a
            file, or shares its name with a method; or if what the grid lists is no list of names or
            seeds.

    >>> values = {"combinations": {"mme": {"rule": "mme", "scope": "noisy-input"}}, "methods": ["macer"],
    ...           "seeds": [0, 1, 2], "ensembles": {"macer x2": {"members": {"macer": 2}, "combinations": ["mme"]}}}
    >>> [(ensemble.name, ensemble.members) for ensemble in declared(values)][::2]
    [('macer x2', (('macer', 0), ('macer', 1))), ('macer x2', (('macer', 1), ('macer', 2)))]
    """
    entries = validate(dict[_Name, dict[str, Any]], values.get("ensembles") or {}, "ensembles")
    combinations = declared_combinations(values) if entries else {}
    methods = list(dict.fromkeys(name for key, _ in _TRAINED for name in _names(values, key)))
    declarations = []
    for name, fields in entries.items():
        where = f"ensembles.{name}"
        entry = validate(_Entry, fields, where)
        if name in methods:
            raise InputError(f"params.yaml: {where} must not have the name of a method")
        if len({*entry.combinations}) < len(entry.combinations):
            raise InputError(
                f"params.yaml: {where}.combinations must be different, got {entry.combinations}"
            )
        choices = _choices(entry, values, methods, where)
        for key in entry.combinations:
            _check_fits(combinations, key, len(choices[0]), where)
        for key, members in product(entry.combinations, choices):
            declaration = EnsembleDeclaration(
                name=name, members=members, key=key, combination=combinations[key]
            )
            if len(declaration.slug) > MAX_NAME:
                raise InputError(
                    f"params.yaml: {where} must make names of files of at most {MAX_NAME} "
                    "characters, got "
                    f"{declaration.slug}; declare fewer members, or a shorter combination"
                )
            declarations.append(declaration)
    return declarations


def _choices(
    entry: _Entry, values: Mapping[str, Any], methods: Sequence[str], where: str
) -> list[tuple[tuple[str, int], ...]]:
    """Return the members of each ensemble of an entry, of the methods that the grid trains."""
    if any(isinstance(seeds, list) for seeds in entry.members.values()):
        listed = validate(_Seeds, entry.members, f"{where}.members")
        members = tuple((method, seed) for method, seeds in listed.items() for seed in seeds)
        if len(set(members)) < len(members):
            raise InputError(f"params.yaml: {where}.members must name each seed once, got {listed}")
        return [members]
    counts = validate(_Numbers, entry.members, f"{where}.members")
    for method in counts:
        if method not in methods:
            raise InputError(
                f"params.yaml: {where}.members must be among {', '.join(methods)}; got {method}"
                f"{did_you_mean(method, methods) or '; add it to members'}"
            )
    choices = [
        *_apart({method: (count, _seeds(values, method)) for method, count in counts.items()})
    ]
    if not choices:
        raise InputError(
            f"params.yaml: {where}.members must leave each member a seed of its own, but the grid "
            "has too few for "
            f"{counts}; add the methods to members, and further member_seeds"
        )
    return choices


def _check_fits(combinations: Mapping[str, Combination], key: str, count: int, where: str) -> None:
    """Check that there is such a combination, and that it can be one of ``count`` members."""
    if key not in combinations:
        raise InputError(
            f"params.yaml: {where}.combinations must be among {', '.join(combinations)}; got "
            f"{key!r}"
        )
    try:
        combinations[key].check_members(count)
    except ValueError as error:
        raise InputError(f"params.yaml: {where}, combination {key}: {error}") from error


def _apart(
    wanted: Mapping[str, tuple[int, Sequence[int]]], taken: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield every choice of that many seeds for each method, no seed taken twice: models of one
    seed begin alike.
    """
    if not wanted:
        yield ()
        return
    (method, (count, seeds)), *rest = wanted.items()
    for choice in combinations_of([seed for seed in seeds if seed not in taken], count):
        for others in _apart(dict(rest), taken + choice):
            yield tuple((method, seed) for seed in choice) + others


def _seeds(values: Mapping[str, Any], method: str) -> list[int]:
    """Return the seeds that the grid trains a method with."""
    keys = [seeds for methods, seeds in _TRAINED if method in _names(values, methods)]
    return sorted(
        {
            seed
            for key in keys
            for seed in validate(list[NonNegativeCount], _listed(values, key), key)
        }
    )


def _names(values: Mapping[str, Any], key: str) -> list[str]:
    """Return the methods that the grid lists under a key; none if it has no such key."""
    return validate(list[str], _listed(values, key), key)


def _listed(values: Mapping[str, Any], key: str) -> Any:
    """Return the list under a key, as ``seeds`` or ``warm_start.seeds``; an empty one if there is
    none.
    """
    where, _, name = key.rpartition(".")
    section = merge(dict(values), where, optional=True)[0] if where else values
    return section.get(name) or []
