"""One cell of the pipeline: the files of the pool, and of all ensembles, at one noise level."""

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
    """The members that are certified together, and the names of their ensembles."""

    dataset: str | None  # None if there are no members
    sigma: float
    members: list[Member]
    ensembles: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_+.-]+$", max_length=MAX_NAME)]]


def write_ensembles(
    values: dict[str, Any], dataset: str, sigma: float, models: Path, out: Path
) -> None:
    """Write the declared ensembles at one noise level into a folder: all or none.

    Args:
        values: The parameters.
        dataset: Name of the recipe; several recipes can use one data set.
        sigma: The noise level.
        models: Folder of the models METHOD/SEED of this noise level.
        out: The folder to make; one that an earlier run made is replaced.
    Raises:
        InputError: If a combination is invalid, a member is not trained, members do not fit each
            other, or ``out`` is something else.
    """
    files.check_output(out, "a folder of ensembles", files.is_made(out, POOL), inputs=[models])
    cells = pool_cells(values, dataset, sigma)
    declarations = declared_ensembles(values)
    check_rules(values)
    members, dataset_name = _members(cells, models, sigma)
    specs = {
        declaration.slug: EnsembleSpec(
            declaration=replace(
                declaration, name=members_text(declaration.members)
            ),  # one file, whatever tables call it
            dataset=cast(str, dataset_name),  # an ensemble has members
            sigma=sigma,
            members=[members[pair] for pair in declaration.members],
            fitted=None,
        )
        for declaration in declarations
    }
    pool = PoolSpec(
        dataset=dataset_name,
        sigma=sigma,
        members=list(members.values()),
        ensembles=list(specs),
    )
    with files.replacing(out) as temporary:
        temporary.mkdir()
        files.write_json(temporary / POOL, asdict(pool))
        for name, spec in specs.items():
            spec.write(temporary / f"{name}.json")


def read_pool(
    folder: Path, weights: Path | None = None
) -> tuple[PoolSpec, dict[str, EnsembleSpec]]:
    """Read what :func:`write_ensembles` wrote, without loading a model: the ensembles by name.

    Args:
        folder: The folder of ensembles.
        weights: Folder of their fitted weights; ``None`` reads ensembles without weights.
    Raises:
        InputError: If a file is missing, damaged or that of another ensemble, or an ensemble has a
            member that the pool does not have.
    """
    pool = files.read_as(PoolSpec, folder / POOL, "a pool", REMEDY)
    specs = {}
    for name in pool.ensembles:
        path = folder / f"{name}.json"
        spec = read(path)
        if spec.name != name:
            raise InputError(f"{path} must be the ensemble {name}, got {spec.name}; {REMEDY}")
        if not all(member in pool.members for member in spec.members):
            raise InputError(f"{path} must have members of {folder / POOL}; make the folder again")
        if weights is not None and spec.is_fitted_for_all_images:
            spec = _with_fitted_weights(spec, weights / path.name)
        specs[name] = spec
    return pool, specs


def _with_fitted_weights(spec: EnsembleSpec, path: Path) -> EnsembleSpec:
    """Read an ensemble again, with the weights that were fitted for it."""
    fitted = read(path)
    if fitted.fitted is None or replace(fitted, fitted=None) != spec:
        raise InputError(
            f"{path} must be the ensemble {spec.name} as it is now, with fitted weights; make it "
            "again with python -m stages.weights"
        )
    return fitted


def read_weights(
    path: Path, member_count: int, indices: Iterable[int] = ()
) -> dict[int, list[float]]:
    """Read the weights of each image, (L,), by the image's index.

    Raises:
        InputError: If the file is missing or damaged, or an image of ``indices`` has no weights.
    """
    columns = [f"w{number}" for number in range(member_count)]
    parsers = {"idx": tsv.whole, "class": tsv.whole} | dict.fromkeys(columns, tsv.finite)
    table = tsv.read_tsv(path, parsers)
    weights = table[columns].to_numpy()
    tsv.refuse_rows(path, table["idx"].duplicated(), "idx must be unique")
    is_negative = weights.min(axis=1) < -ROUNDING
    is_off = abs(weights.sum(axis=1) - 1) > member_count * ROUNDING
    tsv.refuse_rows(path, is_negative | is_off, "weights must be at least 0 and sum to 1")
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
        InputError: If a combination is invalid; names it.
    """
    if not values.get("ensembles"):
        return
    for key, combination in declared_combinations(values).items():
        try:
            check_rule(combination)
        except ValueError as error:
            raise InputError(f"params.yaml: combinations.{key}: {error}") from error


def _members(
    cells: Sequence[GridCell], models: Path, sigma: float
) -> tuple[dict[tuple[str, int], Member], str | None]:
    """Return the trained members by method and seed, which fit each other, and their data set."""
    folders = {cell: model_folder(models, cell.method, cell.seed) for cell in cells}
    missing = []
    for cell, folder in folders.items():
        if not (folder / checkpoint.CARD).is_file():
            missing.append(cell.target("train"))
    if missing:
        raise InputError(
            f"every member must be trained, but {models} lacks {len(missing)}; dvc repro "
            f"{' '.join(missing)}"
        )
    members = {}
    cards = []
    for cell, folder in folders.items():
        model, card = checkpoint.load_model(folder)
        cards.append(card)
        members[cell.method, cell.seed] = Member(
            path=folder.as_posix(),
            method=cell.method,
            seed=cell.seed,
            classifier=model_fingerprint(model),
        )
    dataset = cards[0].dataset if cards else None
    check_members(list(members.values()), cards, dataset, sigma)
    return members, dataset
