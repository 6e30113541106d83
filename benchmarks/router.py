"""What a router between noise levels gains over each level alone, at equal draws, image by image.

``python -m benchmarks.router MODELS ROUTER DATA --out ROWS``: MODELS has an expert SIGMA/METHOD/SEED for each class of
ROUTER, DATA is a prepared CIFAR-10. An expert alone takes n0 + n draws of an image; the router and the expert that it
chooses take half of both each. ROWS gets one row file each, the router's file, ``router.md`` and its picture. One
thread; what is there is not made again, and a run that was killed continues.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rs.storage import files

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
LEVEL_COLOURS = ("#56b4e9", "#0072b2", "#e69f00")
HINDSIGHT = "best level in hindsight, not a sound classifier"


def main(
    models: Annotated[Path, typer.Argument(file_okay=False, help="Folder of experts, SIGMA/METHOD/SEED.")],
    router: Annotated[Path, typer.Argument(file_okay=False, help="Folder of the router.")],
    data: Annotated[Path, typer.Argument(file_okay=False, help="Prepared data set.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for rows, router.md and router.svg.")],
    method: Annotated[str, typer.Option(help="Training method of the experts.")] = "advmacer",
    seed: Annotated[int, typer.Option(help="Training seed of the experts.")] = 0,
    images: Annotated[int, typer.Option(min=2, help="First images to certify.")] = 2000,
    n0: Annotated[int, typer.Option(min=2, help="Selection draws of an expert alone.")] = 100,
    n: Annotated[int, typer.Option(min=2, help="Further draws of an expert alone.")] = 1000,
    split: Annotated[str, typer.Option(help="test, or validation for a choice.")] = "test",
) -> None:
    """Certify what is not there yet, and write the table."""
    import torch

    from benchmarks.finetune import certify
    from rs.reporting.report import svg
    from rs.storage.certificate_rows import read_rows

    torch.set_num_threads(1)
    experts = expert_folders(models, router, method, seed)
    out.mkdir(parents=True, exist_ok=True)
    spec = out / "spec.json"
    sigma = files.read_json(router / "model.json")["sigma"]
    parts = [{"path": str(folder), "sigma": level} for level, folder in experts.items()]
    files.write_json(spec, {"rule": "router", "router": {"path": str(router), "sigma": sigma}, "experts": parts})
    values: dict[str, Any] = {"subset": {"first": images}, "engine": "folded"}
    rows = {f"sigma {level:g}": out / f"{level:g}.tsv" for level in experts}
    for folder, path in zip(experts.values(), rows.values(), strict=True):
        certify(folder, None, data, path, values | {"n0": n0, "n": n}, split)
    rows["router"] = out / "router.tsv"
    certify(spec, None, data, rows["router"], values | {"n0": n0 // 2, "n": n // 2}, split)
    frames = {name: read_rows(path) for name, path in rows.items()}
    page = table(frames)
    files.write_text(out / "router.md", page)
    files.write_bytes(out / "router.svg", svg(draw(frames)))
    print(page)


def expert_folders(models: Path, router: Path, method: str, seed: int) -> dict[float, Path]:
    """Return the model folder of each class of a router, by noise level."""
    folders = {float(path.name): path / method / str(seed) for path in models.iterdir() if path.is_dir()}
    return {float(name): folders[float(name)] for name in files.read_json(router / "model.json")["classes"]}


def scores_of(rows: dict[str, pd.DataFrame]) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.bool_]]]:
    """Return radius times correct of each image, and whether it is right, by classifier; hindsight last."""
    import numpy as np

    scores = {name: (frame["radius"] * frame["correct"]).to_numpy() for name, frame in rows.items()}
    right = {name: frame["correct"].to_numpy() == 1 for name, frame in rows.items()}
    levels = [name for name in rows if name != "router"]
    scores[HINDSIGHT] = np.max([scores[name] for name in levels], axis=0)
    right[HINDSIGHT] = np.any([right[name] for name in levels], axis=0)
    return scores, right


def draw(rows: dict[str, pd.DataFrame]) -> Figure:
    """Draw the certified accuracy by radius of each level alone, of the router and of hindsight."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis, (scores, right) = figure.subplots(), scores_of(rows)
    colours = dict(zip(rows, LEVEL_COLOURS, strict=False)) | {"router": "#000000", HINDSIGHT: "#888888"}
    radii = np.linspace(0, max(map(np.max, scores.values())), 500)
    for name, values in scores.items():
        shares = [(right[name] & (values >= radius)).mean() for radius in radii]
        axis.plot(radii, shares, color=colours.get(name), linestyle=":" if name == HINDSIGHT else "-", label=name)
    axis.set(xlabel="l2 radius", ylabel="certified accuracy", ylim=(0, None), xlim=(0, None))
    axis.legend(frameon=False, fontsize=8)
    return figure


def table(rows: dict[str, pd.DataFrame]) -> str:
    """Return certified accuracies and ACRs, and the share of images that each level gets, as Markdown."""
    import numpy as np

    from benchmarks.transfer_page import with_error

    scores, right = scores_of(rows)
    levels = [name for name in rows if name != "router"]
    lines = ["| | ACR | " + " | ".join(f"{radius:g}" for radius in RADII) + " |", "|---|---:|" + "---:|" * len(RADII)]
    for name, values in scores.items():
        shares = [(right[name] & (values >= radius)).mean() for radius in RADII]
        lines.append(f"| {name} | {with_error(values)} | {' | '.join(f'{s:.1%}' for s in shares)} |")
    router = rows["router"]
    chosen = router["level"].value_counts(normalize=True).sort_index()
    named = [f"{share:.1%} {f'to sigma {level:g}' if level else 'abstain'}" for level, share in chosen.items()]
    best = scores[HINDSIGHT] > 0
    agreed = np.mean([scores[f"sigma {s:g}"][i] == scores[HINDSIGHT][i] for i, s in _chosen(router, best)])
    gains = {name: scores["router"] - scores[name] for name in levels}
    lines += ["", f"The router, of {len(router):,} images: {', '.join(named)}."]
    lines += [f"Of images that some level certifies, it chooses the best level for {agreed:.1%}, if it chooses one."]
    for name, gain in gains.items():
        lines += [f"Router less {name}: ACR {with_error(gain, '+')}, paired."]
    return "\n".join(lines) + "\n"


def _chosen(router: pd.DataFrame, best: Any) -> list[tuple[int, float]]:
    """Return the positions of images that some level certifies and the router's level, where it chooses one."""
    return [(i, level) for i, level in enumerate(router["level"]) if level > 0 and best[i]]


if __name__ == "__main__":
    from rs.command_line.shell import run

    run(main)
