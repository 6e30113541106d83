"""Whether AdvMacer's loss gains by CAT-RS's choice of images or by hard-drop's weights, on validation images.

``python -m benchmarks.complementary DATA MODELS --out ROWS``: MODELS has METHOD/SEED of AdvMacer, CAT-RS and hard-drop
at SIGMA by the recipe cifar10-cpu. Two more are trained for about the seconds of these, and all are certified. ROWS
gets one row file each and ``complementary.md``. One thread; what is there is not made again, and a run that was killed
continues.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.transfer_page import with_error
from rs.methods.advmacer import AdvMacer
from rs.methods.base import Accuracies, Method, Step, accuracy, warmed_up
from rs.methods.hard_drop import HardDrop
from rs.params import validated
from rs.storage import files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Generator, Tensor, nn

RECIPE = "cifar10-cpu"
PARENTS = {
    "advmacer, images of cat-rs": ("advmacer", "cat-rs"),
    "advmacer, weights of hard-drop": ("advmacer", "hard-drop"),
}


@validated
class Weighted(AdvMacer):
    """AdvMacer on the images that hard-drop leaves, drawn by its weights."""

    hard_drop: HardDrop

    def image_weights(self, epoch: int, weights: Tensor, accuracies: Accuracies) -> Tensor | None:
        """See :class:`HardDrop`."""
        return self.hard_drop.image_weights(epoch, weights, accuracies)


@validated
class Confident(AdvMacer):
    """Cross-entropy of the K_i easiest draws, and AdvMacer's radius term of the images whose draws are all used.

    K_i is that of CAT-RS: Binomial(M, share of the noisy copies of the image itself that are right), 1 at least. The
    cross-entropy is a mean of logs, as draws are chosen by theirs; AdvMacer's is the log of a mean.
    """

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int) -> Step:
        """See :class:`AdvMacer`."""
        import torch

        from rs.methods.cat_rs import easiest_cross_entropy, used_draws
        from rs.smoothing.attack import evaluating, forward, pgd
        from rs.smoothing.noise import draw
        from rs.smoothing.soft import radius_hinge

        noise = draw(x, self.draws, sigma, rng)
        with evaluating(model), torch.no_grad():
            right = (forward(model, x, noise).argmax(dim=-1) == y.unsqueeze(1)).float().mean(dim=1)
        used = used_draws(right, self.draws, rng)
        epsilon = warmed_up(self.epsilon, epoch, self.warmup)
        logits = forward(model, pgd(model, x, y, noise, self.steps, epsilon, rng=rng), noise)
        cross_entropy = easiest_cross_entropy(logits, y, used)
        sure = used == self.draws
        hinge = logits.sum() * 0
        if sure.any():
            hinge = radius_hinge(logits[sure], y[sure], sigma, self.gamma, self.beta)[0] * sure.float().mean()
        robustness = self.lam * hinge
        return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy(logits, y))


def file_name(name: str) -> str:
    """Return the name of a method in paths.

    >>> file_name("advmacer, images of cat-rs")
    'advmacer-images-of-cat-rs'
    """
    return name.replace(", ", "-").replace(" ", "-")


def main(
    data: Annotated[Path, typer.Argument(file_okay=False, help="Prepared data set.")],
    models: Annotated[Path, typer.Argument(file_okay=False, help="Folder of trained models, METHOD/SEED.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for models, rows and complementary.md.")],
    sigma: Annotated[float, typer.Option(help="Noise level.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Training seed.")] = 0,
    images: Annotated[int, typer.Option(min=2, help="First validation images to certify.")] = 1000,
) -> None:
    """Train and certify what is not there yet, and write the table."""
    import torch

    from rs.certification.certify_model import certification_settings, certify_model
    from rs.certification.load import load
    from rs.data.images import load_images
    from rs.params import packaged
    from rs.smoothing.settings import SmoothingOptions
    from rs.storage.certificate_rows import read_rows
    from rs.training.recipe import RunOptions, training_recipe
    from rs.training.run import is_finished, train_model

    torch.set_num_threads(1)
    values, cpu = packaged(), torch.device("cpu")
    recipe, dropping = (training_recipe(values, RECIPE, method, sigma) for method in ("advmacer", "hard-drop"))
    new: dict[str, tuple[Method, int]] = {
        "advmacer, images of cat-rs": (Confident(**recipe.hyperparameters), 5),
        "advmacer, weights of hard-drop": (Weighted(**recipe.hyperparameters, hard_drop=dropping.method), 4),
    }
    options = RunOptions(sigma=sigma, seed=seed, device=cpu)
    folders = {method: models / method / str(seed) for method in ("advmacer", "cat-rs", "hard-drop")}
    for name, (method, epochs) in new.items():
        folder, training = out / file_name(name) / str(seed), replace(recipe.training, epochs=epochs)
        stated = recipe.hyperparameters | {"with": name}
        changed = replace(recipe, method=method, training=training, hyperparameters=stated)
        folders[name] = folder / "model"
        if not is_finished(changed, data, options, out=folders[name]):
            train_model(changed, data, options, out=folders[name], log=folder / "log")
    chosen, frames = load_images(data, "validation"), {}
    settings = certification_settings(values, RECIPE, {"subset": {"first": images}})
    for name, folder in folders.items():
        rows = out / f"{file_name(name)}-{seed}.tsv"
        certify_model(load(folder, chosen.meta), chosen, settings, SmoothingOptions(device=cpu), out=rows)
        frames[name] = read_rows(rows)
    page = table({name: (frame["radius"] * frame["correct"]).to_numpy() for name, frame in frames.items()})
    files.write_text(out / "complementary.md", page)
    print(page)


def table(scores: dict[str, NDArray[np.float64]]) -> str:
    """Return the ACR of each, and the differences of the new ones to their parents, as Markdown."""
    lines = ["| method | ACR | to one parent | to the other |", "|---|---:|---:|---:|"]
    for name, values in scores.items():
        cells = [with_error(values - scores[parent], "+") for parent in PARENTS.get(name, ())]
        lines.append(f"| {name} | {with_error(values)} | {' | '.join(cells) or ' | '} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    typer.run(main)
