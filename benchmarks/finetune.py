"""What training with noise gives a network that has never seen noise: certificates and CPU seconds,
run by run.

``python -m benchmarks.finetune DATA WORK --out ROWS``: DATA is a prepared CIFAR-10, WORK keeps
models, ROWS one row file a run and ``seconds.csv``. Runs follow the order of :data:`RUNS`, in one
thread. What is there is not made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rs.storage import files

if TYPE_CHECKING:
    from torch import nn

NETWORK = "benchmarks.networks:resnet8"
START_EPOCHS = 5
METHODS = ("gaussian", "consistency", "smoothadv", "advmacer")
DENOISERS = ("denoiser-mse", "denoiser-stability")
DENOISER_SIZE = {
    "depth": 6,
    "width": 32,
}  # of the published ones 17 and 64, which cost fifteen times as much


@dataclass(frozen=True)
class Run:
    """One training and its certificates."""

    sigma: float
    method: str | None = None  # None: the network as it was
    epochs: int = 0
    start: str = "clean"  # or random
    rate: float | None = None  # of learning; None: the recipe's

    @property
    def name(self) -> str:
        """The name of its row file."""
        parts = [f"{self.sigma:g}", self.start, self.method or "nothing", str(self.epochs)]
        return "-".join([*parts, *([] if self.rate is None else [f"rate{self.rate:g}"])])


RATES = [
    Run(0.25, method, 1, rate=rate)
    for rate in (0.02, 0.1, 0.05, 0.2)
    for method in ("gaussian", "advmacer")
]
"""The choice of the recipe's learning rate, by validation images."""

SCRATCH_EPOCHS = {"gaussian": 7, "consistency": 5, "smoothadv": 3, "advmacer": 3}
"""Epochs from random weights that take about as long as the start and two epochs from it."""

RUNS = [
    *[Run(sigma) for sigma in (0.25, 0.5)],
    *[Run(sigma, method, 1) for sigma in (0.25, 0.5) for method in METHODS],
    *[Run(sigma, method, 2) for sigma in (0.25, 0.5) for method in (*METHODS, *DENOISERS)],
    *[Run(sigma, method, 4) for sigma in (0.25, 0.5) for method in METHODS],
    *[
        Run(sigma, method, epochs, "random")
        for sigma in (0.25, 0.5)
        for method, epochs in SCRATCH_EPOCHS.items()
    ],
]
"""Short ones first, so that those of a shorter time are comparable."""


def main(
    data: Annotated[Path, typer.Argument(file_okay=False, help="Prepared CIFAR-10.")],
    work: Annotated[Path, typer.Argument(file_okay=False, help="Folder for models and logs.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for rows and seconds.csv.")],
    seed: Annotated[int, typer.Option(help="Seed of start and training.")] = 0,
    images: Annotated[int, typer.Option(help="First images to certify.")] = 500,
    rates: Annotated[
        bool, typer.Option("--rates", help="Choose the learning rate instead.")
    ] = False,
    method: Annotated[
        str | None, typer.Option(help="Training method whose runs are made; default: all.")
    ] = None,
    accuracies: Annotated[
        bool,
        typer.Option("--accuracies", help="Write accuracy.csv of the runs that are there instead."),
    ] = False,
) -> None:
    """Train and certify what is not there yet."""
    import torch

    torch.set_num_threads(1)
    if accuracies:
        write_accuracies(data, work, out, seed)
        return
    start = work / f"start-{seed}.safetensors"
    if not start.exists():
        timed(out, f"start-{seed}", lambda: train_start(data, start, seed))
    for run in [run for run in (RATES if rates else RUNS) if method in (None, run.method)]:
        rows = out / f"{run.name}-{seed}.tsv"
        if not rows.exists():
            model = trained_network(run, data, start, work / f"{run.name}-{seed}", seed, out)
            settings = {"subset": {"first": images}, "engine": "folded"}
            certify(model, run.sigma, data, rows, settings, "validation" if rates else "test")


def write_accuracies(
    data: Path, work: Path, out: Path, seed: int, network_name: str = NETWORK
) -> None:
    """Add to ``accuracy.csv`` the accuracy on all test images without noise of each run that has
    rows and a model.
    """
    import torch

    from rs.data.images import load_images

    test = load_images(data, "test")
    images = torch.stack([test.pixels(index) for index in range(len(test))])
    labels, accuracies = torch.as_tensor(test.labels), read_accuracies(out)
    for run in RUNS:
        name = f"{run.name}-{seed}"
        if (out / f"{name}.tsv").exists() and (run.method is None or (work / name).exists()):
            start = work / f"start-{seed}.safetensors"
            network = trained_network(run, data, start, work / name, seed, out, network_name).eval()
            with torch.inference_mode():
                predicted = torch.cat([network(part).argmax(1) for part in images.split(500)])
            accuracies[name] = float((predicted == labels).float().mean())
    lines = [{"run": name, "accuracy": value} for name, value in accuracies.items()]
    files.write_csv(out / "accuracy.csv", ("run", "accuracy"), lines)


def read_accuracies(folder: Path) -> dict[str, float]:
    """Return the accuracy without noise of each run, as far as it was measured."""
    import pandas as pd

    path = folder / "accuracy.csv"
    return pd.read_csv(path).set_index("run")["accuracy"].to_dict() if path.exists() else {}


def train_start(
    data: Path,
    out: Path,
    seed: int,
    network_name: str = NETWORK,
    rate: float = 0.2,
    batch: int = 128,
) -> None:
    """Train a network without noise by SGD with crops and flips; the learning rate rises to
    ``rate`` and falls.
    """
    import torch
    import torch.nn.functional as F
    from safetensors.torch import save

    from rs.data.images import load_images
    from rs.smoothing.user_networks import import_network

    torch.manual_seed(seed)
    split = load_images(data, "train")
    images = torch.stack([split.pixels(index) for index in range(len(split))])
    labels, network = torch.as_tensor(split.labels), import_network(network_name)
    side, padded, steps = images.shape[-1], F.pad(images, (4, 4, 4, 4)), len(images) // batch
    optimizer = torch.optim.SGD(
        network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, START_EPOCHS * steps, pct_start=0.2, cycle_momentum=False
    )
    for _ in range(START_EPOCHS):
        for chosen in torch.randperm(len(images))[: steps * batch].split(batch):
            top, left = torch.randint(0, 9, (2,)).tolist()
            x = padded[chosen, :, top : top + side, left : left + side]
            x = torch.where(torch.rand(batch, 1, 1, 1) < 0.5, x.flip(-1), x)
            optimizer.zero_grad()
            F.cross_entropy(network(x), labels[chosen]).backward()
            optimizer.step()
            schedule.step()
    files.write_bytes(out, save(network.state_dict()))


def trained_network(
    run: Run,
    data: Path,
    start: Path,
    out: Path,
    seed: int,
    seconds: Path,
    network_name: str = NETWORK,
) -> nn.Module:
    """Return the network of a run, trained unless it is there."""
    import torch
    from safetensors.torch import load_file

    from rs import params
    from rs.certification.load import load
    from rs.models.checkpoint import WEIGHTS
    from rs.smoothing.user_networks import import_network, register_network
    from rs.training.recipe import RunOptions, training_recipe
    from rs.training.run import train_model

    register_network(network_name)
    if run.method is None:
        network = import_network(network_name)
        network.load_state_dict(load_file(start))
        return network
    if not (out / WEIGHTS).exists():
        from_scratch = run.start == "random"
        model = {"network": network_name, "weights": None if from_scratch else str(start)}
        training = {"epochs": run.epochs, "eval_every": 0} | (
            {} if run.rate is None else {"learning_rate": run.rate}
        )
        values = params.packaged()
        values = params.replace_in_recipe(values, "finetune", "model", model)
        values = params.replace_in_recipe(values, "finetune", f"{run.method}.training", training)
        if run.method in DENOISERS:
            values = params.replace_in_recipe(values, "finetune", run.method, DENOISER_SIZE)
        recipe = training_recipe(values, "finetune", run.method, run.sigma)
        options = RunOptions(
            sigma=run.sigma, seed=seed, device=torch.device("cpu"), from_scratch=from_scratch
        )
        log = out.with_name(f"{out.name}.log")
        timed(
            seconds,
            f"{run.name}-{seed}",
            lambda: train_model(recipe, data, options, out=out, log=log),
        )
    return load(out).module


def certify(
    model: nn.Module | Path,
    sigma: float | None,
    data: Path,
    rows: Path,
    values: dict[str, Any],
    split: str,
) -> None:
    """Certify images of a split, with alpha = 0.001 and, unless ``values`` has another, n = 1,000."""
    import torch

    from rs.certification.certify_model import certification_settings, certify_model
    from rs.certification.load import load
    from rs.data.images import load_images
    from rs.params import packaged
    from rs.smoothing.settings import SmoothingOptions

    chosen = load_images(data, split)
    settings = certification_settings(packaged(), "finetune", values)
    options = SmoothingOptions(sigma=sigma, device=torch.device("cpu"))
    certify_model(load(model, chosen.meta), chosen, settings, options, out=rows)


def timed(folder: Path, name: str, work: Callable[[], None]) -> None:
    """Do a training and write its CPU seconds down; work that continues an earlier process counts
    what is left.
    """
    began = time.process_time()
    work()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "seconds.csv"
    header = "" if path.exists() else "run,cpu_seconds\n"
    with path.open("a", encoding="utf-8") as lines:
        lines.write(f"{header}{name},{round(time.process_time() - began, 1)}\n")


if __name__ == "__main__":
    typer.run(main)
