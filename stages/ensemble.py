"""Make an ensemble of trained models: one file that certifies like any model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rs.errors import InputError
from stages.shell import ParamsFile, run

if TYPE_CHECKING:
    from rs.study import Cell


def main(
    name: Annotated[str, typer.Argument(help='Methods and how many of each: "advmacer x1 + smoothadv x2".')],
    dataset: Annotated[str, typer.Option(help="Data set of the members, as in the paths.")],
    sigma: Annotated[float, typer.Option(help="Noise std of the members, in pixels of [0, 1].")],
    models: Annotated[Path, typer.Option(file_okay=False, help="Folder of the models METHOD/SEED.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Ensemble to write, *.json.")],
    rule: Annotated[str, typer.Option(help="softmax, logits, vote, mme or consensus.")] = "softmax",
    weights: Annotated[
        str | None,
        typer.Option(help="Weights 0.3,0.7 in the order of NAME, chosen without test images; default: equal."),
    ] = None,
    consensus: Annotated[int | None, typer.Option(help="How many of the first members must agree.")] = None,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Make the ensemble NAME of the first seeds of each method that the parameters declare."""
    from rs import artefacts
    from rs.ensemble_card import SCOPES, EnsembleCard, Member, canonical_name, check_members, members_named
    from rs.params import read
    from rs.study import first_cells

    counts, numbers = members_named(name), parse_weights(weights)
    cells = first_cells(read(params), dataset, sigma, counts)
    folders = trained(cells, models)
    loaded = [artefacts.load(folder) for folder in folders]
    members = [
        Member(path=folder.as_posix(), method=cell.method, seed=cell.seed, classifier=artefacts.fingerprint(model))
        for cell, folder, (model, _) in zip(cells, folders, loaded, strict=True)
    ]
    card = EnsembleCard(
        name=canonical_name(counts),
        dataset=dataset,
        sigma=sigma,
        members=members,
        rule=rule,
        weights=numbers,
        consensus=consensus,
        scope=SCOPES.get(rule, "global"),
    )
    check_members(card, [own for _, own in loaded])
    card.write(out)


def parse_weights(text: str | None) -> list[float] | None:
    """Read ``0.3,0.7``."""
    try:
        return [float(word) for word in text.split(",")] if text is not None else None
    except ValueError as error:
        raise InputError(f"--weights must be numbers with commas between them, got {text!r}") from error


def trained(cells: Sequence[Cell], models: Path) -> list[Path]:
    """Model folders of the members.

    Raises:
        InputError: If some do not exist; names the command that makes them.
    """
    folders = [models / cell.method / str(cell.seed) for cell in cells]
    lacking = zip(cells, folders, strict=True)
    missing = [cell.target("train") for cell, folder in lacking if not (folder / "model.json").is_file()]
    if missing:
        raise InputError(
            f"every member must be trained, but {models} lacks {len(missing)}; dvc repro {' '.join(missing)}"
        )
    return folders


if __name__ == "__main__":
    run(main)
