"""The one training loop: every method, every data set."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from rs.data import images as data
from rs.data.format import Images
from rs.errors import InputError
from rs.methods.base import Method, Step
from rs.runtime.progress import progress
from rs.runtime.streams import Stream, stream
from rs.smoothing.classifier import SmoothedClassifier, autocast
from rs.smoothing.noise import Rng, Shared
from rs.storage import files
from rs.training import attack_backend, distributed
from rs.training.distributed import Part, average
from rs.training.settings import Progress, Training


class Trainer:
    """One training: a model, a method and a data set at one noise level.

    Every random number is keyed by (seed, purpose, epoch, step), so a training that stops and resumes from its
    checkpoint ends, on the CPU, with the same bytes as an unbroken one. Several processes that are joined
    (``rs.runtime.processes``) take the steps of one, each with its part of the images.

    Args:
        model: As built, on ``device``; trained in place.
        method: What a step minimises.
        images: The training split.
        evaluation: The split of the quick ACR.
        settings: How to train.
        sigma: Noise standard deviation, in pixels of [0, 1].
        seed: Of every random number but the initial weights.
        device: Where to train.
        workers: Processes that read images from disk, for data sets that are not in memory.
        place: (rank, world): this process among those that train this model together.
        seconds: End with the epoch in which so many seconds of training have passed, evaluation excluded.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        images: Images,
        evaluation: Images,
        settings: Training,
        *,
        sigma: float,
        seed: int,
        device: torch.device,
        workers: int = 0,
        place: tuple[int, int] = (0, 1),
        seconds: float | None = None,
    ) -> None:
        if min(settings.batch, len(images)) < method.steps_per_batch:
            raise InputError(
                f"training.batch and the train split must be at least the number of draws, {method.steps_per_batch}, "
                f"because a step takes batch // draws images; got {settings.batch} and {len(images)}"
            )
        self.model, self.method, self.images, self.evaluation = model, method, images, evaluation
        self.settings, self.sigma, self.seed, self.device = settings, sigma, seed, device
        self.workers, self.place, self.seconds = workers, place, seconds
        self.together = place[1] > 1
        if self.together and seconds is not None:
            raise InputError("seconds must not be limited where several processes train together: their clocks differ")
        self.parameters = list(model.parameters())
        self.network = attack_backend.network(
            model, settings.engine, images.meta.shape, compile_training=not self.together
        )
        if self.together:  # after the network of attacks, which has no batch norm left to share
            distributed.share_statistics(model)
        self.velocities: list[Tensor | None] = [None] * len(self.parameters)
        self.progress = Progress()

    def run(self, checkpoint: Path | None = None) -> Progress:
        """Train to the last epoch, from ``checkpoint`` if it is there; save into it every few epochs.

        Raises:
            InputError: If the loss or its gradient becomes NaN or infinite; the last checkpoint stays.
        """
        if checkpoint is not None and checkpoint.exists():
            self.restore(checkpoint)
        done, epochs, first = self.progress.epoch, self.settings.epochs, self.place[0] == 0
        if self.together:
            distributed.agree(done, "epochs done", self.device)
        for epoch in progress(range(done, epochs), epochs, "train", done) if first else range(done, epochs):
            if self.seconds is not None and self.progress.seconds >= self.seconds:
                break
            self.epoch(epoch)
            if first and checkpoint is not None and (epoch + 1) % self.settings.checkpoint_every == 0:
                self.save(checkpoint)
        self.model.eval()
        return self.progress

    def epoch(self, epoch: int) -> None:
        """Train one epoch, and write down what happened."""
        start = time.perf_counter()
        rate = self._learning_rate(epoch)
        self.model.train()
        self.network.train()
        means = self._means([self._step(x, y, rate, epoch, *at) for x, y, *at in self._chunks(epoch)])
        if not (math.isfinite(means["loss"]) and math.isfinite(means["gradient_norm"])):
            raise InputError(
                f"the loss must stay finite, but epoch {epoch + 1} gave {means['loss']} and a gradient of norm "
                f"{means['gradient_norm']}; lower learning_rate or lam, or set clip_norm"
            )
        now = self.progress
        now.epoch, now.seconds = epoch + 1, now.seconds + time.perf_counter() - start
        row = {"epoch": epoch + 1, "updates": now.updates, "learning_rate": rate, **means, "acr": self._quick_acr()}
        now.history.append(row)
        now.timing.append({"epoch": epoch + 1, "seconds": now.seconds})

    def _learning_rate(self, epoch: int) -> float:
        passed = sum(milestone <= epoch for milestone in self.settings.milestones)
        return self.settings.learning_rate * self.settings.decay**passed

    def _chunks(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Part, int, int]]:
        """Images and labels of each optimiser step, with the part of it they are, and its batch and chunk number.

        A batch is cut into ``chunks`` equal steps; what does not divide is left out, as is a batch that is too small.
        """
        s, chunks = self.settings, self.method.steps_per_batch

        def own(images: int) -> Part:
            return distributed.part(images // chunks, *self.place)

        def keep(images: int) -> list[slice]:
            mine = own(images)
            starts = [chunk * mine.whole + mine.first for chunk in range(chunks)]
            return [slice(start, start + mine.images) for start in starts]

        epoch_batches = data.batches(
            self.images,
            s.batch,
            crop=s.crop,
            flip=s.flip,
            seed=self.seed,
            epoch=epoch,
            device=self.device,
            workers=self.workers,
            keep=keep,
        )
        for step, (x, y) in enumerate(epoch_batches):
            mine = own(min(s.batch, len(self.images) - step * s.batch))
            if mine.images:
                steps = zip(x.split(mine.images), y.split(mine.images), strict=True)
                yield from ((*images, mine, step, chunk) for chunk, images in enumerate(steps))

    def _step(self, x: Tensor, y: Tensor, rate: float, epoch: int, mine: Part, step: int, chunk: int) -> Tensor:
        """One optimiser step; returns what it reports, shape (6,), on the device and without synchronisation."""
        rng: Rng = stream(self.seed, Stream.STEP, epoch, step, chunk, device=self.device)
        if self.together:
            rng = Shared(rng, mine.whole, mine.first)
            distributed.count_copies(self.model, mine.copies)
        self.model.zero_grad(set_to_none=True)
        if self.settings.engine == "compiled":
            attack_backend.begin_step(self.device)
        with autocast(self.device, self.settings.precision):
            result = self.method.loss(self.network, x, y, sigma=self.sigma, rng=rng, epoch=epoch)
        (result.loss * mine.weight).backward()
        gradients = [parameter.grad for parameter in self.parameters]
        if self.together:
            average(gradients)
        norm = nn.utils.get_total_norm(gradients)
        if self.settings.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.settings.clip_norm, norm)
        self._descend(rate)
        self.progress.updates += 1
        return mine.weight * report(result, norm)

    def _descend(self, rate: float) -> None:
        """Move the parameters: torch's own SGD, in its functional form, since the class imports the compiler."""
        with torch.no_grad():
            sgd(
                self.parameters,
                [parameter.grad for parameter in self.parameters],
                self.velocities,
                lr=rate,
                momentum=self.settings.momentum,
                weight_decay=self.settings.weight_decay,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )

    def _means(self, reports: list[Tensor]) -> dict[str, float | None]:
        """Means over the steps of an epoch; ``None`` where a method has no such thing."""
        total = torch.stack(reports).double().mean(dim=0)
        if self.together:
            average([total])
        means = total.tolist()
        names = ("loss", "cross_entropy", "robustness", "accuracy", "gradient_norm", "hinge_share")
        return {
            name: None if name == "hinge_share" and math.isnan(mean) else mean
            for name, mean in zip(names, means, strict=True)
        }

    def _quick_acr(self) -> float | None:
        """ACR of a few draws on a few images, at the epochs that ask for it."""
        s, epoch = self.settings, self.progress.epoch
        if s.eval_every == 0 or (epoch % s.eval_every and epoch != s.epochs):
            return None
        classifier = SmoothedClassifier(self.model, len(self.images.meta.classes), self.sigma, precision=s.precision)
        from rs.statistics.metrics import acr  # half a second to import; not every training evaluates

        rows = []
        for index in range(min(s.eval_images, len(self.evaluation))):
            x, label = self.evaluation.pixels(index).to(self.device), int(self.evaluation.labels[index])
            made = classifier.certify(x, s.eval_n0, s.eval_n, s.eval_alpha, index=index, label=label)
            rows.append(made.row(index, label))
        return acr(rows)

    def save(self, checkpoint: Path) -> None:
        """Write model, velocities and progress, in one step."""
        state = {"model": self.model.state_dict(), "velocities": self.velocities}
        with files.replacing(checkpoint) as temporary:
            torch.save({**state, "progress": asdict(self.progress)}, temporary)

    def restore(self, checkpoint: Path) -> None:
        """Read what :meth:`save` wrote."""
        state = torch.load(checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.velocities = state["velocities"]
        self.progress = Progress(**state["progress"])


def report(result: Step, norm: Tensor) -> Tensor:
    """Numbers of one step, shape (6,): the columns of the history that are averaged over an epoch."""
    missing = torch.full_like(result.loss, math.nan)
    hinge = result.hinge_share if result.hinge_share is not None else missing
    values = (result.loss, result.cross_entropy, result.robustness, result.accuracy, norm, hinge)
    return torch.stack([value.detach().float() for value in values])


def initial_seed(seed: int) -> int:
    """Seed of the initial weights: a word of their own stream."""
    return int(np.random.SeedSequence(seed, spawn_key=(Stream.INITIAL,)).generate_state(1, np.uint32)[0])
