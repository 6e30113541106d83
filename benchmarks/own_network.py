"""The page on training a network of one's own, from rows of ``benchmarks.finetune``: a table and a
picture.

``python -m benchmarks.own_network``: reads ``reports/rows/finetune`` (rows, ``seconds.csv`` and
``accuracy.csv``), and writes ``benchmarks/results/own-network.md`` and ``own-network.svg``. Runs
without rows are left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.finetune import (
    DENOISER_SIZE,
    DENOISERS,
    RUNS,
    SCRATCH_EPOCHS,
    START_EPOCHS,
    Run,
    read_accuracies,
)
from benchmarks.other_networks import NETWORKS
from rs.reporting.figures import COLOURS
from rs.reporting.logs import read_alone
from rs.reporting.report import svg
from rs.reporting.results import Group
from rs.reporting.tables.formatting import with_errors, with_verdict
from rs.storage import files

ROWS, PAGE = Path("reports/rows/finetune"), Path("benchmarks/results/own-network.md")

PAIRS = [
    (Run(0, "advmacer", 1), Run(0, "gaussian", 4)),
    (Run(0, "advmacer", 1), Run(0, "consistency", 2)),
    (Run(0, "advmacer", 1), Run(0, "smoothadv", 1)),
    (Run(0, "advmacer", 2), Run(0, "smoothadv", 2)),
    *[
        (Run(0, method, 2), Run(0, method, epochs, "random"))
        for method, epochs in SCRATCH_EPOCHS.items()
    ],
]
"""Trainings that take about as long, at any noise level; from random weights as long as the start
and two epochs.
"""

OTHER_ROWS = Path("reports/rows/other-networks")

RULE = "|---:|---|---|---:|---:|---:|---:|---:|---:|"
HEADER = "| sigma | start | method | epochs | seeds | CPU seconds | ACR | accuracy under noise | accuracy without noise |"

TEXT = """\
# What training with noise gives a network that has never seen noise

`resnet8` of CIFAR-10, trained without noise for {start_epochs} epochs ({start_seconds:,.0f} CPU seconds), then the
recipe `finetune` from these weights (clean) or from random ones. A seed is one of start and training.
ACR ± its standard error over the first {images} test images [over images and seeds]. n = {n:,}, alpha = {alpha:g}.
Most images went through JPEG. Denoisers have {depth} convolutions of {width} channels; the published ones have 17 of
64, for fifteen times the cost.

{table}

![ACR by CPU seconds of training](own-network.svg)

Accuracy under noise is that of the smoothed classifier. Accuracy without noise is that of the network alone, on all
test images. CPU seconds are the epochs times the median of an epoch of the method, in one thread of one machine, and
without the first {start_epochs} epochs. Trainings from random weights take about as long as these and two epochs more,
at the learning rate of the recipe, which was chosen for the clean start.

## Differences at about equal cost

Over the seeds that both have.

{differences}

The rows are in `reports/rows/finetune`; `python -m benchmarks.finetune` makes them, `python -m benchmarks.own_network`
this page.
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
    seconds, groups = epoch_seconds(folder), {}
    for run in sorted(RUNS, key=lambda run: run.sigma):
        seeds = {
            path: path.stem.removeprefix(f"{run.name}-")
            for path in sorted(folder.glob(f"{run.name}-*.tsv"))
        }
        results = [
            replace(
                read_alone(path),
                name=run.name,
                seed=int(seed),
                training_seconds=run.epochs * seconds[run.method] if run.method else 0.0,
            )
            for path, seed in seeds.items()
            if seed.isdigit()
        ]
        if results:
            groups[run] = Group(tuple(results))
    return groups


def epoch_seconds(folder: Path) -> dict[str, float]:
    """Return the median CPU seconds of an epoch of each method."""
    runs, an_epoch = (
        {run.name: run for run in RUNS if run.method},
        defaultdict[str, list[float]](list),
    )
    for name, seconds in read_seconds(folder).items():
        if run := runs.get(name.rpartition("-")[0]):  # else the seconds are of a start
            an_epoch[str(run.method)].append(seconds / run.epochs)
    return {method: median(seconds) for method, seconds in an_epoch.items()}


def read_seconds(folder: Path) -> dict[str, float]:
    """Return the CPU seconds of each training of ``seconds.csv``; those of one that was continued
    are added.
    """
    return pd.read_csv(folder / "seconds.csv").groupby("run")["cpu_seconds"].sum().to_dict()


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
            str(len(group.results)),
            f"{group.training_seconds:,.0f}",
            with_errors(group.acr),
            f"{group.accuracy(0.0):.1%}",
            "–" if None in alone else f"{sum(filter(None, alone)) / len(alone):.1%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def differences(groups: dict[Run, Group]) -> list[str]:
    """Return the table of the pairs of :data:`PAIRS` that have rows, as Markdown."""
    lines = ["| sigma | training | less | seeds | difference of ACR |", "|---:|---|---|---:|---:|"]
    for sigma, (first, second) in product(sorted({run.sigma for run in groups}), PAIRS):
        pair = replace(first, sigma=sigma), replace(second, sigma=sigma)
        if groups.keys() >= {*pair}:
            seeds = set.intersection(
                *({result.seed for result in groups[run].results} for run in pair)
            )
            a, b = (
                Group(tuple(one for one in groups[run].results if one.seed in seeds))
                for run in pair
            )
            names = (
                f"{run.method}, {run.epochs} epoch{'s' * (run.epochs > 1)}, {run.start}"
                for run in pair
            )
            lines.append(
                f"| {sigma:g} | {' | '.join(names)} | {len(seeds)} | "
                f"{with_verdict(a.difference_to(b))} |"
            )
    return lines


def draw(groups: dict[Run, Group]) -> Figure:
    """Draw the ACR against the CPU seconds of training: a panel per noise level, a line per method
    and start.
    """
    sigmas = sorted({run.sigma for run in groups})
    figure = Figure(figsize=(4.5 * len(sigmas), 4.2), layout="constrained")
    for axis, sigma in zip(figure.subplots(1, len(sigmas), squeeze=False)[0], sigmas, strict=True):
        lines: dict[tuple[str, str | None], list[Group]] = {}
        for run, group in groups.items():
            if run.sigma == sigma:
                lines.setdefault((run.start, run.method), []).append(group)
        for (start, method), line in lines.items():
            points = [
                (group.training_seconds, group.acr.value, group.acr.error_images) for group in line
            ]
            seconds, acrs, errors = zip(*sorted(points), strict=True)
            colour, name = COLOURS.get(method or "", "#000000"), method or "nothing"
            marker = dict(zip(DENOISERS, "sD", strict=True)).get(method or "", "o")
            filled, label = (
                (colour, name) if start == "clean" else ("white", f"{name}, from scratch")
            )
            axis.errorbar(
                seconds,
                acrs,
                errors,
                color=colour,
                marker=marker,
                mfc=filled,
                capsize=2,
                label=label,
            )
        axis.set_title(f"σ = {sigma:g}")
        axis.set_xlabel("CPU seconds, without the clean start")
        axis.set_ylabel("ACR")
        axis.set_ylim(bottom=0)
    handles = {
        label: handle
        for axis in figure.axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=8
    )
    return figure


def page(folder: Path) -> str:
    """Return the page from the files in ``folder``."""
    groups = read_groups(folder)
    starts = [
        seconds for name, seconds in read_seconds(folder).items() if name.startswith("start-")
    ]
    first = next(iter(groups.values())).first
    budget = first.rows.iloc[0]
    return TEXT.format(
        start_epochs=START_EPOCHS,
        start_seconds=median(starts),
        images=len(first.rows),
        n=int(budget["n"]),
        alpha=budget["alpha"],
        **DENOISER_SIZE,
        table="\n".join([HEADER, RULE, *table_rows(groups, read_accuracies(folder))]),
        differences="\n".join(differences(groups)),
    )


def others(folder: Path) -> str:
    """Return the section on other networks from the folders of networks in ``folder``."""
    rows, images, n = [], 0, 0
    for name, network in NETWORKS.items():
        groups = read_groups(folder / network.function)
        rows += [
            f"| {name} {row}"
            for row in table_rows(groups, read_accuracies(folder / network.function))
        ]
        first = next(iter(groups.values())).first.rows
        images, n = len(first), int(first["n"].max())
    trained = ", ".join(
        f"{network.images:,} for {network.function}" for network in NETWORKS.values()
    )
    table = "\n".join([f"| network {HEADER}", f"|---{RULE}", *rows])
    return OTHERS_TEXT.format(images=images, n=n, trained=trained, table=table)


def main() -> None:
    """Write the page and its picture."""
    files.write_text(PAGE, page(ROWS) + others(OTHER_ROWS))
    files.write_bytes(PAGE.with_suffix(".svg"), svg(draw(read_groups(ROWS))))


if __name__ == "__main__":
    main()
