"""One cell of the pipeline: the files of all ensembles at one noise level, and of the pool they are
made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from rs.ensemble.outputs import ROUNDING
from rs.ensemble.rules import check_rule
from rs.ensemble.spec import REMEDY, EnsembleSpec, Member, check_members, read
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.params import MAX_NAME, validated
from rs.storage import files, tsv
from rs.study.ensembles import declared_combinations, declared_ensembles, members_text
from rs.study.grid import pool_cells
from rs.study.layout import GridCell, model_folder

POOL = "pool.json"


@validated
class PoolSpec:
    """The members that are certified together, and the ensembles of them, as file names without
    ``.json``.
    """

    dataset: str | None  # None of no members
    sigma: float
    members: list[Member]
    ensembles: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_+.-]+$", max_length=MAX_NAME)]]


def write_ensembles(
    values: dict[str, Any], dataset: str, sigma: float, models: Path, out: Path
) -> None:
    """Write the ensembles that the parameters declare, at ``sigma``, into the folder ``out``, all
    or none.

    Args:
        values: The parameters.
        dataset: Name of the recipe; several recipes can be of one data set.
        models: Folder of the models METHOD/SEED of this noise level.
        out: The folder to make; one that an earlier run made is replaced.
    Raises:
        InputError: If a combination is of no rule, a member is not trained, members do not fit each
            other, or ``out`` is something else.
    """
    files.check_output(out, "a folder of ensembles", files.is_made(out, POOL), inputs=[models])
    cells = pool_cells(values, dataset, sigma)
    declarations = declared_ensembles(values)
    check_rules(values)
    members, name = _members(cells, models, sigma)
    specs = {
        declaration.slug: EnsembleSpec(
            declaration=replace(
                declaration, name=members_text(declaration.members)
            ),  # one file, whatever tables call it
            dataset=cast(str, name),  # an ensemble has members
            sigma=sigma,
            members=[members[pair] for pair in declaration.members],
            fitted=None,
        )
        for declaration in declarations
    }
    pool = PoolSpec(
        dataset=name, sigma=sigma, members=list(members.values()), ensembles=list(specs)
    )
    with files.replacing(out) as temporary:
        temporary.mkdir()
        files.write_json(temporary / POOL, asdict(pool))
        for slug, spec in specs.items():
            spec.write(temporary / f"{slug}.json")


def read_pool(
    folder: Path, weights: Path | None = None
) -> tuple[PoolSpec, dict[str, EnsembleSpec]]:
    """Read what :func:`write_ensembles` wrote, without loading a model; the ensembles by their file
    names.

    Args:
        folder: The folder of ensembles.
        weights: Folder of the weights that were solved for them; ``None`` reads them without.
    Raises:
        InputError: If a file is missing, damaged or that of another ensemble, an ensemble has a
            member that the pool has not, or weights are those of another ensemble.
    """
    pool = files.read_as(PoolSpec, folder / POOL, "a pool", REMEDY)
    specs = {slug: read(folder / f"{slug}.json") for slug in pool.ensembles}
    for slug, spec in specs.items():
        if spec.declaration.slug != slug:
            raise InputError(
                f"{folder / slug}.json must be the ensemble {slug}, got {spec.declaration.slug}; "
                f"{REMEDY}"
            )
        if not all(member in pool.members for member in spec.members):
            raise InputError(
                f"{folder / slug}.json must have members of {folder / POOL}; make the folder again"
            )
        if (
            weights is not None
            and spec.combination.solved
            and spec.combination.scope != "per-image"
        ):
            specs[slug] = _solved(spec, weights / f"{slug}.json")
    return pool, specs


def _solved(spec: EnsembleSpec, path: Path) -> EnsembleSpec:
    """Read the ensemble ``spec`` with the weights that were solved for it."""
    solved = read(path)
    if solved.fitted is None or replace(solved, fitted=None) != spec:
        raise InputError(
            f"{path} must be the ensemble {spec.declaration.name} as it is now, with weights that "
            "are solved; make it "
            "again with python -m stages.weights"
        )
    return solved


def read_weights(
    path: Path, member_count: int, indices: Iterable[int] = ()
) -> dict[int, list[float]]:
    """Read weights that were solved image by image: by image, (L,).

    Raises:
        InputError: If the file is missing or damaged, and names the line; or if an image of
            ``indices`` has none.
    """
    names = [f"w{number}" for number in range(member_count)]
    table = tsv.read_tsv(
        path, {"idx": tsv.whole, "class": tsv.whole} | dict.fromkeys(names, tsv.finite)
    )
    weights = table[names].to_numpy()
    tsv.refuse(path, table["idx"].duplicated(), "idx must be unique")
    off = (weights.min(axis=1) < -ROUNDING) | (
        abs(weights.sum(axis=1) - 1) > member_count * ROUNDING
    )
    tsv.refuse(path, off, "weights must be at least 0 and sum to 1")
    by_image = dict(zip(table["idx"].tolist(), weights.tolist(), strict=True))
    for index in indices:
        if index not in by_image:
            raise InputError(
                f"{path} must have weights for image {index}; make it again with python -m "
                "stages.weights"
            )
    return by_image


def check_rules(values: Mapping[str, Any]) -> None:
    """Check ``combinations`` against their rules, if there are ``ensembles``.

    Raises:
        InputError: If one names no rule, or has not the parts that its rule needs; names it.
    """
    for key, combination in (
        declared_combinations(values) if values.get("ensembles") else {}
    ).items():
        try:
            check_rule(combination)
        except ValueError as error:
            raise InputError(f"params.yaml: combinations.{key}: {error}") from error


def _members(
    cells: Sequence[GridCell], models: Path, sigma: float
) -> tuple[dict[tuple[str, int], Member], str | None]:
    """Return the trained members by method and seed, and their data set, after checking that they
    fit each other.
    """
    folders = {cell: model_folder(models, cell.method, cell.seed) for cell in cells}
    missing = [
        cell.target("train")
        for cell, folder in folders.items()
        if not (folder / checkpoint.CARD).is_file()
    ]
    if missing:
        raise InputError(
            f"every member must be trained, but {models} lacks {len(missing)}; dvc repro "
            f"{' '.join(missing)}"
        )
    loaded = [checkpoint.load_model(folder) for folder in folders.values()]
    members = [
        Member(
            path=folder.as_posix(),
            method=cell.method,
            seed=cell.seed,
            classifier=model_fingerprint(model),
        )
        for (cell, folder), (model, _) in zip(folders.items(), loaded, strict=True)
    ]
    cards = [card for _, card in loaded]
    dataset = cards[0].dataset if cards else None
    check_members(members, cards, dataset, sigma)
    return {(member.method, member.seed): member for member in members}, dataset
