"""The page on training a network of one's own, from committed rows: a table and a picture.

``python -m benchmarks.own_network`` reads ``reports/rows/finetune`` (rows, ``seconds.csv`` and
``accuracy.csv``) and ``reports/rows/other-networks``, and writes
``benchmarks/results/own-network.md`` and ``own-network.svg``. Runs without rows are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, median

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import markdown_line
from rs.reporting.figures import COLORS
from rs.reporting.logs import read_alone
from rs.reporting.report import drawn
from rs.reporting.results import Group
from rs.reporting.tables.formatting import with_errors, with_verdict
from rs.storage import files

ROWS = Path("reports/rows/finetune")
PAGE = Path("benchmarks/results/own-network.md")

START_EPOCHS = 5
METHODS = ("gaussian", "consistency", "smoothadv", "advmacer")
DENOISERS = {"denoiser-mse": "s", "denoiser-stability": "D"}
"""Methods that train a denoiser, and their markers in the picture."""
SCRATCH_EPOCHS = {"gaussian": 7, "consistency": 5, "smoothadv": 3, "advmacer": 3}
"""Epochs from random weights that take about as long as the start and two epochs from it."""


@dataclass(frozen=True)
class Run:
    """One training and its certificates."""

    sigma: float
    method: str = "nothing"  # the network as it was
    epochs: int = 0
    start: str = "clean"  # or random

    @property
    def name(self) -> str:
        """The name of its row file, without the seed."""
        return f"{self.sigma:g}-{self.start}-{self.method}-{self.epochs}"


def _runs() -> list[Run]:
    """Return all runs, by noise level."""
    runs = []
    for sigma in (0.25, 0.5):
        runs.append(Run(sigma))
        for epochs in (1, 2, 4):
            runs += [Run(sigma, method, epochs) for method in METHODS]
            if epochs == 2:
                runs += [Run(sigma, method, epochs) for method in DENOISERS]
        for method, epochs in SCRATCH_EPOCHS.items():
            runs.append(Run(sigma, method, epochs, "random"))
    return runs


RUNS = _runs()

PAIRS = [
    (Run(0, "advmacer", 1), Run(0, "gaussian", 4)),
    (Run(0, "advmacer", 1), Run(0, "consistency", 2)),
    (Run(0, "advmacer", 1), Run(0, "smoothadv", 1)),
    (Run(0, "advmacer", 2), Run(0, "smoothadv", 2)),
    (Run(0, "gaussian", 2), Run(0, "gaussian", 7, "random")),
    (Run(0, "consistency", 2), Run(0, "consistency", 5, "random")),
    (Run(0, "smoothadv", 2), Run(0, "smoothadv", 3, "random")),
    (Run(0, "advmacer", 2), Run(0, "advmacer", 3, "random")),
]
"""Training runs that take about as long; those from random weights as the start and two epochs."""

NETWORKS = {
    "torchvision ResNet-18, 64 x 64": ("resnet18", 1_000),
    "timm ViT-tiny, 32 x 32": ("vit_tiny", 1_000),
    "gray CNN, 28 x 28": ("Grey", 20_000),
}
"""Folder of the rows of a network, and the images of the train split that it was trained with."""

OTHER_ROWS = Path("reports/rows/other-networks")

RULE = "|---:|---|---|---:|---:|---:|---:|---:|---:|"
HEADER = (
    "| sigma | start | method | epochs | seeds | CPU seconds "
    "| ACR | accuracy under noise | accuracy without noise |"
)

TEXT = """\
# What training with noise does for a network that has never seen noise

A `resnet8` is trained on CIFAR-10 without noise for {start_epochs} epochs ({start_seconds:,.0f} CPU
seconds). The recipe `finetune` then trains it with noise, from these weights (start: clean) or from
random ones. Each seed covers both training runs. The table shows the ACR ± its standard error over
the first {images} test images [over images and seeds], with n = {n:,} and alpha = {alpha:g}. Most
images were stored as JPEG. The denoisers have 6 convolutions of 32 channels; the published ones
have 17 of 64, which cost fifteen times as much.

{table}

![ACR by CPU seconds of training](own-network.svg)

Accuracy under noise is the accuracy of the smoothed classifier. Accuracy without noise is the
accuracy of the network alone, on all test images. CPU seconds are the number of epochs times the
median time of one epoch of the method, in one thread of one machine; the {start_epochs} epochs
without noise are not included. A training run from random weights takes about as long as the
{start_epochs} epochs without noise and two epochs of its method together. Its learning rate is that
of the recipe, which was chosen for the clean start.

## Differences at about equal cost

Each row is one training run minus another, over the seeds that both have.

{differences}

The rows are in `reports/rows/finetune`; `python -m benchmarks.own_network` makes this page from
them. The program that trained the networks is in the git history: `benchmarks/finetune.py`.
"""

OTHERS_TEXT = """
## Other networks

The first {images} test images of CIFAR-10, resized; n = {n:,}, one seed. Numbers of training
images: {trained}. These are too few for large ACRs; the table only shows what one epoch of the
recipe does to other architectures.

{table}

The rows are in `reports/rows/other-networks`.
"""


def read_groups(folder: Path) -> dict[Run, Group]:
    """Return the results of each run over its seeds, in the order of :data:`RUNS`."""
    seconds = epoch_seconds(folder)
    groups = {}
    for run in RUNS:
        results = []
        for path in sorted(folder.glob(f"{run.name}-*.tsv")):
            seed = path.stem.removeprefix(f"{run.name}-")
            if not seed.isdigit():  # rows of the choice of a learning rate
                continue
            result = replace(read_alone(path), name=run.name, seed=int(seed))
            spent = run.epochs * seconds.get(run.method, 0.0)
            results.append(replace(result, training_seconds=spent))
        if results:
            groups[run] = Group(tuple(results))
    return groups


def epoch_seconds(folder: Path) -> dict[str, float]:
    """Return the median CPU seconds of an epoch of each method."""
    seconds_of: dict[str, list[float]] = {}
    seconds_by_name = read_seconds(folder)
    for run in RUNS:
        for name, seconds in seconds_by_name.items():
            if run.epochs and name.rpartition("-")[0] == run.name:
                seconds_of.setdefault(run.method, []).append(seconds / run.epochs)
    return {method: median(seconds) for method, seconds in seconds_of.items()}


def read_seconds(folder: Path) -> dict[str, float]:
    """Return the CPU seconds of each training, the sum of its lines in ``seconds.csv``."""
    return pd.read_csv(folder / "seconds.csv").groupby("run")["cpu_seconds"].sum().to_dict()


def table_rows(folder: Path) -> list[str]:
    """Return the rows of the table of the page as Markdown."""
    accuracies = pd.read_csv(folder / "accuracy.csv").set_index("run")["accuracy"]
    lines = []
    for run, group in read_groups(folder).items():
        without_noise = "–"
        names = [f"{run.name}-{result.seed}" for result in group.results]
        if accuracies.index.isin(names).sum() == len(names):
            without_noise = f"{fmean(accuracies[names]):.1%}"
        cells = [
            f"{run.sigma:g}",
            run.start,
            run.method,
            str(run.epochs or ""),
            str(len(group.results)),
            f"{group.training_seconds:,.0f}",
            with_errors(group.acr),
            f"{group.accuracy(0.0):.1%}",
            without_noise,
        ]
        lines.append(markdown_line(cells))
    return lines


def differences(groups: dict[Run, Group]) -> list[str]:
    """Return the table of the pairs of :data:`PAIRS` that have rows, as Markdown."""
    lines = ["| sigma | training | minus | seeds | difference of ACR |", "|---:|---|---|---:|---:|"]
    for sigma, pair in product((0.25, 0.5), PAIRS):
        first, second = (replace(run, sigma=sigma) for run in pair)
        if first not in groups or second not in groups:
            continue
        seeds = _seeds(groups[first]) & _seeds(groups[second])
        minuend = _of_seeds(groups[first], seeds)
        difference = minuend.difference_to(_of_seeds(groups[second], seeds))
        trainings = [_training(first), _training(second)]
        cells = [f"{sigma:g}", *trainings, str(len(seeds)), with_verdict(difference)]
        lines.append(markdown_line(cells))
    return lines


def _seeds(group: Group) -> set[int | None]:
    return {result.seed for result in group.results}


def _of_seeds(group: Group, seeds: set[int | None]) -> Group:
    return Group(tuple(result for result in group.results if result.seed in seeds))


def _training(run: Run) -> str:
    epochs = "1 epoch" if run.epochs == 1 else f"{run.epochs} epochs"
    return f"{run.method}, {epochs}, {run.start}"


def draw(groups: dict[Run, Group]) -> Figure:
    """Draw ACR against CPU seconds: a panel per noise level, a line per method and start."""
    sigmas = sorted({run.sigma for run in groups})
    figure = Figure(figsize=(4.5 * len(sigmas), 4.2), layout="constrained")
    handles = {}
    panels = figure.subplots(1, len(sigmas), squeeze=False)[0]
    for axis, sigma in zip(panels, sigmas, strict=True):
        lines: dict[tuple[str, str], list[Group]] = {}
        for run, group in groups.items():
            if run.sigma == sigma:
                lines.setdefault((run.start, run.method), []).append(group)
        for (start, method), line in lines.items():
            line.sort(key=lambda group: group.training_seconds or 0.0)
            color = COLORS.get(method, "#000000")
            is_clean = start == "clean"
            label = method if is_clean else f"{method}, from scratch"
            handles[label] = axis.errorbar(
                [group.training_seconds for group in line],
                [group.acr.value for group in line],
                [group.acr.error_images for group in line],
                color=color,
                marker=DENOISERS.get(method, "o"),
                mfc=color if is_clean else "white",
                capsize=2,
                label=label,
            )
        axis.set_title(f"σ = {sigma:g}")
        axis.set_xlabel("CPU seconds, without the clean start")
        axis.set_ylabel("ACR")
        axis.set_ylim(bottom=0)
    figure.legend(
        handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=8
    )
    return figure


def page(folder: Path) -> str:
    """Return the page from the files in ``folder``."""
    groups = read_groups(folder)
    spent = read_seconds(folder)
    starts = [seconds for name, seconds in spent.items() if name.startswith("start-")]
    rows = next(iter(groups.values())).first.rows
    return TEXT.format(
        start_epochs=START_EPOCHS,
        start_seconds=median(starts),
        images=len(rows),
        n=int(rows["n"].iloc[0]),
        alpha=rows["alpha"].iloc[0],
        table="\n".join([HEADER, RULE, *table_rows(folder)]),
        differences="\n".join(differences(groups)),
    )


def others(folder: Path) -> str:
    """Return the section on other networks from the folders of networks in ``folder``."""
    lines = [f"| network {HEADER}", f"|---{RULE}"]
    trained = []
    for name, (network, images) in NETWORKS.items():
        lines += [f"| {name} {row}" for row in table_rows(folder / network)]
        trained.append(f"{images:,} for {network}")
    first = next(iter(read_groups(folder / network).values())).first.rows
    return OTHERS_TEXT.format(
        images=len(first),
        n=int(first["n"].max()),
        trained=", ".join(trained),
        table="\n".join(lines),
    )


def main() -> None:
    """Write the page and its picture."""
    files.write_text(PAGE, page(ROWS) + others(OTHER_ROWS))
    files.write_bytes(PAGE.with_suffix(".svg"), drawn(draw(read_groups(ROWS)), "svg"))


if __name__ == "__main__":
    main()
