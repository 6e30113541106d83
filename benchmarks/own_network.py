"""The page on training a network of one's own, from rows of ``benchmarks.finetune``: a table and a picture.

``python -m benchmarks.own_network``: reads ``reports/rows/finetune`` (rows, ``seconds.csv`` and ``accuracy.csv``), and
writes ``benchmarks/results/own-network.md`` and ``own-network.svg``. Runs without rows are left out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.finetune import DENOISER_SIZE, DENOISERS, RUNS, START_EPOCHS, Run
from benchmarks.other_networks import NETWORKS
from rs.reporting.figures import COLOURS
from rs.reporting.logs import read_alone
from rs.reporting.report import svg
from rs.reporting.results import Group, Result
from rs.reporting.tables.formatting import with_errors
from rs.storage import files

ROWS, PAGE = Path("reports/rows/finetune"), Path("benchmarks/results/own-network.md")

OTHER_ROWS = Path("reports/rows/other-networks")

RULE = "|---:|---|---|---:|---:|---:|---:|---:|"
HEADER = "| sigma | start | method | epochs | CPU seconds | ACR | accuracy under noise | accuracy without noise |"

TEXT = """\
# What training with noise gives a network that has never seen noise

`resnet8` of CIFAR-10, trained without noise for {start_epochs} epochs ({start_seconds:,.0f} CPU seconds), then the
recipe `finetune` from these weights (clean) or from random ones. {seeds} of start and training.
ACR ± its standard error over the first {images} test images{seed_error}. n = {n:,}, alpha = {alpha:g}. Most images went
through JPEG. Denoisers have {depth} convolutions of {width} channels; the published ones have 17 of 64, for fifteen
times the cost.

{table}

![ACR by CPU seconds of training](own-network.svg)

Accuracy under noise is that of the smoothed classifier. Accuracy without noise is that of the network alone, on all
test images. CPU seconds are of one thread of a busy machine, without the first {start_epochs} epochs. The rows are in
`reports/rows/finetune`; `python -m benchmarks.finetune` makes them, `python -m benchmarks.own_network` this page.
"""

OTHERS_TEXT = """
## Other networks

The first {images} test images of CIFAR-10, resized, n = {n:,}, one seed. Training images: {trained}.
These are too few for large ACRs; the table says what one epoch of the recipe does to other architectures.

{table}

The rows are in `reports/rows/other-networks`; `python -m benchmarks.other_networks` makes them.
"""


def read_groups(folder: Path) -> dict[Run, Group]:
    """Return the results of each run over its seeds, in the order of :data:`RUNS`, by noise level."""
    seconds = pd.read_csv(folder / "seconds.csv").groupby("run")["cpu_seconds"].sum()
    groups = {}
    for run in sorted(RUNS, key=lambda run: run.sigma):
        paths = sorted(folder.glob(f"{run.name}-[0-9]*.tsv"))
        results = [_result(path, run, seconds) for path in paths if path.stem.removeprefix(f"{run.name}-").isdigit()]
        if results:
            groups[run] = Group(tuple(results))
    return groups


def _result(path: Path, run: Run, seconds: pd.Series[float]) -> Result:
    spent = 0.0 if run.method is None else float(seconds[path.stem])
    return replace(read_alone(path)[0], name=run.name, seed=int(path.stem.rpartition("-")[2]), training_seconds=spent)


def table_rows(groups: dict[Run, Group], accuracies: dict[str, float]) -> list[str]:
    """Return the rows of the table of the page as Markdown."""
    lines = []
    for run, group in groups.items():
        alone = [accuracies.get(f"{run.name}-{result.seed}") for result in group.results]
        cells = [
            f"{run.sigma:g}",
            run.start,
            run.method or "nothing",
            str(run.epochs or ""),
            f"{group.training_seconds:,.0f}",
            with_errors(group.acr),
            f"{group.accuracy(0.0):.1%}",
            "–" if None in alone else f"{sum(filter(None, alone)) / len(alone):.1%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(groups: dict[Run, Group]) -> Figure:
    """Draw the ACR against the CPU seconds of training: a panel per noise level, a line per method and start."""
    sigmas = sorted({run.sigma for run in groups})
    figure = Figure(figsize=(4.5 * len(sigmas), 4.2), layout="constrained")
    for axis, sigma in zip(figure.subplots(1, len(sigmas), squeeze=False)[0], sigmas, strict=True):
        lines: dict[tuple[str, str | None], list[Group]] = {}
        for run, group in groups.items():
            if run.sigma == sigma:
                lines.setdefault((run.start, run.method), []).append(group)
        for (start, method), line in lines.items():
            points = [(group.training_seconds, group.acr.value, group.acr.error_images) for group in line]
            seconds, acrs, errors = zip(*sorted(points), strict=True)
            colour, name = COLOURS.get(method or "", "#000000"), method or "nothing"
            marker = "s" if method in DENOISERS else "o"
            filled, label = (colour, name) if start == "clean" else ("white", f"{name}, from scratch")
            axis.errorbar(seconds, acrs, errors, color=colour, marker=marker, mfc=filled, capsize=2, label=label)
        axis.set_title(f"σ = {sigma:g}")
        axis.set_xlabel("CPU seconds of training")
        axis.set_ylabel("ACR")
        axis.set_ylim(bottom=0)
    handles = {
        label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def page(folder: Path) -> str:
    """Return the page from the files in ``folder``."""
    groups = read_groups(folder)
    seconds = pd.read_csv(folder / "seconds.csv").set_index("run")["cpu_seconds"]
    first = next(iter(groups.values())).first
    seeds = {result.seed for group in groups.values() for result in group.results}
    budget = first.rows.iloc[0]
    return TEXT.format(
        start_epochs=START_EPOCHS,
        start_seconds=seconds[seconds.index.str.startswith("start-")].mean(),
        seeds="One seed" if len(seeds) == 1 else f"Up to {len(seeds)} seeds",
        seed_error="; another seed may differ by more" if len(seeds) == 1 else "",
        images=len(first.rows),
        n=int(budget["n"]),
        alpha=budget["alpha"],
        **DENOISER_SIZE,
        table="\n".join([HEADER, RULE, *table_rows(groups, read_accuracies(folder))]),
    )


def others(folder: Path) -> str:
    """Return the section on other networks from the folders of networks in ``folder``."""
    rows, images, n = [], 0, 0
    for name, network in NETWORKS.items():
        groups = read_groups(folder / network.function)
        rows += [f"| {name} {row}" for row in table_rows(groups, read_accuracies(folder / network.function))]
        first = next(iter(groups.values())).first.rows
        images, n = len(first), int(first["n"].max())
    trained = ", ".join(f"{network.images:,} for {network.function}" for network in NETWORKS.values())
    table = "\n".join([f"| network {HEADER}", f"|---{RULE}", *rows])
    return OTHERS_TEXT.format(images=images, n=n, trained=trained, table=table)


def read_accuracies(folder: Path) -> dict[str, float]:
    """Return the accuracy without noise of each run, as far as it was measured."""
    path = folder / "accuracy.csv"
    return pd.read_csv(path).set_index("run")["accuracy"].to_dict() if path.exists() else {}


def main() -> None:
    """Write the page and its picture."""
    files.write_text(PAGE, page(ROWS) + others(OTHER_ROWS))
    files.write_bytes(PAGE.with_suffix(".svg"), svg(draw(read_groups(ROWS))))


if __name__ == "__main__":
    main()
