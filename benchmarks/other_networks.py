"""One epoch of fine-tuning of other networks than ``resnet8``: a ResNet-18, a ViT-tiny and a
network of grey images.

``python -m benchmarks.other_networks DATA WORK --out ROWS``: DATA is a prepared CIFAR-10; ROWS gets
a folder a network with rows, ``seconds.csv`` and ``accuracy.csv``. ``vit_tiny`` needs timm. One
thread; what is there is not made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.finetune import Run, certify, timed, train_start, trained_network, write_accuracies

RUNS = [Run(0.25), Run(0.25, "gaussian", 1), Run(0.25, "advmacer", 1)]
TEST_IMAGES = 200
BATCH = 32  # of the training without noise
CERTIFY = {"n0": 10, "n": 100, "shortcut": True, "engine": "folded"}


@dataclass(frozen=True)
class Network:
    """A network, the images that it takes, and how it is trained without noise."""

    function: str
    side: int
    images: int  # of the train split that it is trained with
    is_grey: bool = False
    rate: float = 0.2  # largest learning rate


NETWORKS = {
    "torchvision ResNet-18, 64 x 64": Network("resnet18", 64, 1_000),
    "timm ViT-tiny, 32 x 32": Network("vit_tiny", 32, 1_000, rate=0.02),
    "grey CNN, 28 x 28": Network("Grey", 28, 20_000, is_grey=True),
}


def prepare(data: Path, out: Path, network: Network) -> None:
    """Write the first images of a prepared data set, resized and perhaps in grey, as a data set of
    their own.
    """
    import numpy as np
    from PIL import Image

    from rs.data.images import PackedImages, load_images
    from rs.data.prepared import save_images

    splits = {}
    for split, count in (("train", network.images), ("test", TEST_IMAGES)):
        whole = load_images(data, split)
        assert isinstance(whole, PackedImages)  # CIFAR-10 is
        pictures = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in whole.images[:count]]
        size = (network.side, network.side)
        resized = [
            picture.convert("L" if network.is_grey else "RGB").resize(size) for picture in pictures
        ]
        arrays = np.stack(
            [np.atleast_3d(np.asarray(picture)).transpose(2, 0, 1) for picture in resized]
        )
        splits[split] = (arrays, whole.labels[:count])
    save_images(out, network.function, splits, whole.meta.classes, source="CIFAR-10, resized")


def main(
    data: Annotated[Path, typer.Argument(file_okay=False, help="Prepared CIFAR-10.")],
    work: Annotated[
        Path, typer.Argument(file_okay=False, help="Folder for data sets, models and logs.")
    ],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for rows.")],
    only: Annotated[
        str | None, typer.Option(help="Function of the one network to train; default: all.")
    ] = None,
) -> None:
    """Train and certify what is not there yet."""
    import torch

    torch.set_num_threads(1)
    for network in [network for network in NETWORKS.values() if only in (None, network.function)]:
        folder, rows, name = (
            work / network.function,
            out / network.function,
            f"benchmarks.networks:{network.function}",
        )
        images, start = folder / "images", folder / "start-0.safetensors"
        if not images.exists():
            prepare(data, images, network)
        if not start.exists():
            timed(rows, "start-0", lambda: train_start(images, start, 0, name, network.rate, BATCH))  # noqa: B023
        for run in RUNS:
            path = rows / f"{run.name}-0.tsv"
            if not path.exists():
                model = trained_network(run, images, start, folder / f"{run.name}-0", 0, rows, name)
                certify(model, run.sigma, images, path, CERTIFY, "test")
        write_accuracies(images, folder, rows, 0, name)


if __name__ == "__main__":
    typer.run(main)
