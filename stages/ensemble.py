"""Make an ensemble of trained models: one file that certifies like any model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rs.errors import InputError
from stages.shell import ParamsFile, run


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

    counts, numbers = members_named(name), parse_weights(weights)
    folders = trained(read(params), dataset, sigma, models, counts)
    loaded = {place: artefacts.load(folder) for place, folder in folders.items()}
    members = [
        Member(
            path=folder.as_posix(), method=method, seed=seed, classifier=artefacts.fingerprint(loaded[method, seed][0])
        )
        for (method, seed), folder in folders.items()
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
    check_members(card, [own for _, own in loaded.values()])
    card.write(out)


def parse_weights(text: str | None) -> list[float] | None:
    """Read ``0.3,0.7``."""
    try:
        return [float(word) for word in text.split(",")] if text is not None else None
    except ValueError as error:
        raise InputError(f"--weights must be numbers with commas between them, got {text!r}") from error


def trained(
    values: Mapping[str, Any], dataset: str, sigma: float, models: Path, counts: Mapping[str, int]
) -> dict[tuple[str, int], Path]:
    """Model folders of the members, by method and seed: the first seeds of each method that are declared.

    Raises:
        InputError: If the parameters do not declare them, or they do not exist; names the command that makes them.
    """
    from rs.params import check, section

    section(values, "recipes", dataset)
    sigmas = section(values, "sigmas")
    if sigma not in check(list[float], sigmas, "sigmas"):
        raise InputError(
            f"sigma must be one of the sigmas of the parameters, {', '.join(map(str, sigmas))}; got {sigma}"
        )
    label = sigmas[sigmas.index(sigma)]  # as it stands in the parameters, and so in the names of DVC's stages
    folders, missing = {}, []
    for method, count in counts.items():
        for seed, stage in declared(values, method, count).items():
            folders[method, seed] = models / method / str(seed)
            if not (folders[method, seed] / "model.json").is_file():
                missing.append(f"{stage}@{dataset}-{method}-{label}-{seed}")
    if missing:
        raise InputError(
            f"every member must be trained, but {models} lacks {len(missing)}; dvc repro {' '.join(missing)}"
        )
    return folders


def declared(values: Mapping[str, Any], method: str, count: int) -> dict[int, str]:
    """The first ``count`` seeds of a method, and the DVC stage that trains each.

    Raises:
        InputError: If the parameters declare fewer.

    >>> declared({"methods": ["macer"], "seeds": [0], "members": ["macer"], "member_seeds": [1, 2]}, "macer", 2)
    {0: 'train', 1: 'train_members'}
    """
    from rs.params import check

    stages: dict[int, str] = {}
    for grid, seeds, stage in (("methods", "seeds", "train"), ("members", "member_seeds", "train_members")):
        if method in check(list[str], values.get(grid) or [], grid):
            for seed in check(list[int], values.get(seeds) or [], seeds):
                stages.setdefault(seed, stage)
    if len(stages) < count:
        raise InputError(
            f"the parameters must declare seeds of {method} for {count} member(s), but declare {len(stages)}; add it "
            "to members, and seeds to member_seeds"
        )
    return dict(list(stages.items())[:count])


if __name__ == "__main__":
    run(main)
