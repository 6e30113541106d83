"""What attacks in bfloat16 cost AdvMacer, whose losses stay float32: its ACR and seconds beside those in float32.

``python -m benchmarks.attack_precision cifar10-cpu --data data/cifar10-cpu --work .work/attacks``. Both are trained
with the same seeds, batches and noise, and certified on the same validation images from the same draws. Processor
seconds are counted, the two take turns, epoch by epoch, and an interrupted measurement continues from its last epoch.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.common import ALPHA, N0, machine
from rs.command_line.shell import DataFolder, ParamsFile, run

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from rs.data.prepared import Images
    from rs.smoothing.classifier import Precision
    from rs.training.recipe import Recipe
    from rs.training.trainer import Trainer

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def main(
    dataset: Annotated[str, typer.Argument(help="Name of the recipe.")],
    data: DataFolder,
    work: Annotated[Path, typer.Option(file_okay=False, help="Folder for checkpoints and rows.")],
    sigma: Annotated[float, typer.Option(help="Noise level.")] = 0.5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each training.")] = 2,
    seeds: Annotated[int, typer.Option(min=2, help="Trainings of each kind: seeds 100, 101 and so on.")] = 3,
    images: Annotated[int, typer.Option(min=2, help="First validation images, that are certified.")] = 500,
    n: Annotated[int, typer.Option(min=1, help="Draws that bound a probability, after 100 that select.")] = 1000,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Print a Markdown table: ACR of each kind of attack, the paired difference, and seconds of an epoch."""
    import torch

    from rs.data.images import load_images
    from rs.params import read_params
    from rs.reporting.tables.formatting import with_errors, with_verdict
    from rs.runtime.device import device_named
    from rs.statistics.comparison import estimate, sample
    from rs.training.recipe import training_recipe

    device_named("cpu")  # keeps memory, as the stages do
    torch.set_num_threads(threads)
    recipe = training_recipe(read_params(params), dataset, "advmacer", sigma)
    settings = replace(recipe.training, epochs=epochs, eval_every=0, checkpoint_every=1)
    recipe, train, validation = (
        replace(recipe, training=settings),
        load_images(data, "train"),
        load_images(data, "validation"),
    )
    numbers = [100 + number for number in range(seeds)]
    rows: dict[Precision, list[pd.DataFrame]] = {precision: [] for precision in PRECISIONS}
    seconds: dict[Precision, list[float]] = {precision: [] for precision in PRECISIONS}
    for seed in numbers:
        place = work / f"{dataset}-{sigma}-{epochs}" / str(seed)
        trainers = {one: trainer(recipe, train, validation, sigma, seed, one) for one in PRECISIONS}
        spent = together(trainers, place, epochs)
        for precision, one in trainers.items():
            rows[precision].append(
                certified(one.trained, validation, sigma, images, n, place / f"{precision}-{images}-{n}.csv")
            )
            seconds[precision].append(spent[precision])
    ratio = median(slow / fast for slow, fast in zip(*seconds.values(), strict=True))
    own = {precision: sample(frames, [[seed] for seed in numbers]) for precision, frames in rows.items()}
    print("| attack | ACR | to float32 | seconds an epoch | faster |")
    print("|---|---:|---:|---:|---:|")
    for precision in PRECISIONS:
        first = precision == PRECISIONS[0]
        cells = [with_errors(estimate(own[precision]))]
        cells.append("–" if first else with_verdict(estimate(own[precision], own[PRECISIONS[0]])))
        cells += [f"{median(seconds[precision]):,.0f}", "1.00" if first else f"{ratio:.2f}"]
        print(f"| {precision} | {' | '.join(cells)} |")
    print(
        f"\n{dataset}, AdvMacer at sigma {sigma}, {epochs} epochs, {seeds} trainings of each; first {images} validation"
    )
    print(f"images, {N0} + {n:,} draws; ± over images [over images and trainings]; processor seconds\n{machine()}")


def trainer(
    recipe: Recipe, train: Images, validation: Images, sigma: float, seed: int, precision: Precision
) -> Trainer:
    """A training whose attacks are of a precision."""
    import torch

    from rs.models import architectures
    from rs.training.attack_backend import TrainingNetwork, frozen
    from rs.training.settings import RunOptions
    from rs.training.trainer import Trainer, initial_seed

    meta, options = train.meta, RunOptions(sigma=sigma, seed=seed, device=torch.device("cpu"))
    start = initial_seed(seed)
    model = architectures.build(recipe.architecture, meta.shape, len(meta.classes), meta.mean, meta.std, start)
    made = Trainer(model, recipe.method, train, validation, recipe.training, options)
    made.network = TrainingNetwork(model, rounded(frozen(model, meta.shape), precision))
    return made


def rounded(attacked: nn.Module, precision: Precision) -> nn.Module:
    """The network, computed in a precision and its logits given in float32."""
    from torch import nn

    from rs.smoothing.classifier import autocast

    class Rounded(nn.Module):
        def forward(self, x: Any) -> Any:
            with autocast(x.device, precision):
                return attacked(x).float()

    return Rounded()


def together(trainers: dict[Precision, Trainer], place: Path, epochs: int) -> dict[Precision, float]:
    """Train all, epoch by epoch in turn; processor seconds of the fastest epoch of each."""
    place.mkdir(parents=True, exist_ok=True)
    for precision, one in trainers.items():
        one.restore(place / f"{precision}.pt")
    for epoch in range(epochs):
        for precision, one in trainers.items():
            if one.progress.epoch > epoch:
                continue
            since = time.process_time()
            one.epoch(epoch)
            one.progress.timing[-1]["processor"] = time.process_time() - since
            one.save(place / f"{precision}.pt")
    return {precision: min(row["processor"] for row in one.progress.timing) for precision, one in trainers.items()}


def certified(model: nn.Module, validation: Images, sigma: float, images: int, n: int, path: Path) -> pd.DataFrame:
    """Rows of the first validation images; a file that has them is read."""
    import pandas as pd

    from rs.smoothing.classifier import SmoothedClassifier
    from rs.storage import files

    if not path.exists():
        classifier = SmoothedClassifier(model.eval(), len(validation.meta.classes), sigma, batch=100, noise="gaussian")
        rows = []
        for index in range(images):
            x, label = validation.pixels(index), int(validation.labels[index])
            rows.append(classifier.certify(x, N0, n, ALPHA, index=index, label=label).row(index, label))
        files.write_text(path, pd.DataFrame(rows).to_csv(index=False))
    return pd.read_csv(path)


if __name__ == "__main__":
    run(main)
