"""The one training loop: every method, every data set, one process or several.

Several processes, as ``torchrun`` starts them, each take steps on their share of the images, with
noise of their own; ``torch.nn.parallel.DistributedDataParallel`` averages the gradients and gives
every process the running statistics of the first one. Batch norm normalizes by the images of its
own process, as is standard.
"""

from __future__ import annotations

import io
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rs.data.prepared import EpochPlan, Images
from rs.errors import InputError
from rs.methods import method_class
from rs.methods.base import Method, Step, WeightsImages
from rs.models.backend import copy_network
from rs.params import PRETRAINING
from rs.runtime import processes
from rs.runtime.device import check_precision, precision_on, products
from rs.runtime.progress import progress, say
from rs.runtime.streams import Stream, process_key, seeded, stream
from rs.smoothing.classifier import autocast
from rs.smoothing.inputs import user_code
from rs.storage import files
from rs.training import attack_backend, warnings
from rs.training.history import Progress, named_means, quick_acr, step_numbers
from rs.training.image_votes import accuracies_under_noise
from rs.training.optimization import (
    gradients_of,
    learning_rate_at,
    move_average,
    optimizers_of,
    take_step,
    trained_parameters,
)
from rs.training.recipe import RunOptions, Training
from rs.training.steps import StepInput, StepLoss, steps_of_epoch

ONE_IMAGE_ERROR = "Expected more than 1 value per channel when training"
"""Error of torch's batch norm for one image with one pixel per channel."""


@dataclass(eq=False, repr=False)
class Trainer:
    """One training run: a model, a method and a data set at one noise level.

    Every random number is keyed by (seed, purpose, epoch, step, process), so a run that stops and
    resumes from its checkpoint ends, on the CPU, with the same bytes as an unbroken one. (More
    than two processes add gradients up in another order in the first step after that.)

    Args:
        model: The untrained model, on ``options.device``; trained in place.
        method: Defines the loss of a step.
        images: The training split.
        evaluation: The split of the quick ACR.
        settings: How to train.
        options: Noise level, seed, device and limits of this run.
        targets: Class probabilities of each image, shape (N, K), for methods that need them.
    Raises:
        InputError: If a step would have less than one image per process, or the settings do not
            suit several processes.
    """

    model: nn.Module
    method: Method
    images: Images
    evaluation: Images
    settings: Training
    options: RunOptions
    targets: Tensor | None = None

    def __post_init__(self) -> None:
        model = self.model
        settings = self.settings
        self.device = self.options.device
        if self.targets is not None:
            self.targets = self.targets.to(self.device)
        self.rank, self.world_size = processes.rank_and_world_size()
        self._check()
        self.size = settings.batch // self.world_size  # of a batch, in this process
        self.batches = math.ceil(len(self.images) // self.world_size / self.size)  # of an epoch
        self.precision = precision_on(self.device, settings.precision)
        check_precision(self.device, self.precision)
        # A trial of the compiler has a backward pass, which would start averaging over processes.
        is_single_process = self.world_size == 1
        # On a CPU compiled batch norms are slower in bfloat16.
        is_slower = self.device.type == "cpu" and self.precision == "bfloat16"
        self.network = attack_backend.training_network(
            model,
            settings.engine,
            self.images.meta.shape,
            compile_training=is_single_process and not is_slower,
            micro_batch=settings.micro_batch,
        )
        self.step_loss: Callable[..., Step] = self._loss
        if not is_single_process:
            self.step_loss = DistributedDataParallel(StepLoss(model, self._loss))
        self.parameters = [*trained_parameters(model).values()]
        self.optimizers = optimizers_of(self.parameters, settings)
        self.average = None if settings.ema_decay is None else copy_network(model)
        # Probabilities by which the images of an epoch are drawn; None shuffles them.
        self.image_weights: Tensor | None = None
        self.progress = Progress()
        self._epoch_start: float | None = None  # None between epochs

    @property
    def trained(self) -> nn.Module:
        """The model to evaluate and keep: the average of the weights if the settings ask for it."""
        return self.model if self.average is None else self.average

    def _check(self) -> None:
        batch = self.settings.batch
        steps = self.method.steps_per_batch
        if batch % self.world_size:
            raise InputError(
                f"training.batch must be divisible by the number of processes, got {batch} and "
                f"{self.world_size}; choose a multiple"
            )
        if min(batch, len(self.images)) // self.world_size < steps:
            several = f" for {self.world_size} processes" if self.world_size > 1 else ""
            raise InputError(
                f"training.batch and the train split must be at least the number of draws, {steps},"
                f" because a step takes batch // draws images; got {batch} and {len(self.images)}"
                f"{several}; increase them"
            )
        if self.world_size > 1 and self.options.seconds is not None:
            raise InputError(
                "seconds must not be limited where several processes train together, because their "
                f"clocks differ, got {self.options.seconds:g}; limit epochs"
            )

    def run(self, checkpoint: Path | None = None) -> Progress:
        """Train to the end, from ``checkpoint`` if it exists; save into it every few epochs.

        Args:
            checkpoint: A file; of several processes only the first one reads and writes it.
        Raises:
            InputError: If the loss or its gradient becomes NaN or infinite, or a step has one image
                that batch norm cannot train on, or the DVC that started it has died; the last
                checkpoint stays.
        """
        self.restore(checkpoint)
        done = self.progress.epoch
        epochs: Iterable[int] = itertools.count(done)
        if self.rank == 0:
            if done:
                say(f"continuing after epoch {done}", sys.stderr)
            total = self.settings.epochs if self.options.seconds is None else None
            epochs = progress(epochs, total, "train", done, details=self.progress.describe)
        for epoch in epochs:
            if epoch > 0 and self._is_over(epoch):
                break
            self.epoch(epoch)
            is_due = (epoch + 1) % self.settings.checkpoint_every == 0
            if is_due and checkpoint is not None and self.rank == 0:
                self.save(checkpoint)
                if not self._is_over(epoch + 1):
                    processes.check_starter()
        self.trained.eval()
        return self.progress

    def epoch(self, epoch: int) -> None:
        """Train one epoch and append its row to the history."""
        self._epoch_start = time.perf_counter()
        self._weigh_images(epoch)
        self.model.train()
        self.network.train()
        attack_backend.freeze_norms(self.model)
        means = self._train_epoch(epoch)
        if not (math.isfinite(means["loss"]) and math.isfinite(means["gradient_norm"])):
            raise InputError(
                f"the loss must stay finite, but epoch {epoch + 1} gave {means['loss']} and a "
                f"gradient of norm {means['gradient_norm']}; lower learning_rate or lam, or set "
                "clip_norm"
            )
        if epoch == 0 and means["accuracy"] is not None:
            begins_gaussian = isinstance(self.method, method_class(PRETRAINING))
            warnings.warn_of_chance(means["accuracy"], self.images.labels, begins_gaussian)
        progress = self.progress
        progress.seconds = self._seconds()
        self._epoch_start = None
        progress.epoch = epoch + 1
        row = {
            "epoch": progress.epoch,
            "updates": progress.updates,
            "learning_rate": learning_rate_at(self.settings, self._share(epoch + 0.5)),
            **means,
            "acr": self._quick_acr(),
        }
        progress.history.append(row)
        progress.timing.append({"epoch": progress.epoch, "seconds": progress.seconds})
        if self.options.on_epoch is not None:
            self.options.on_epoch(row)

    def _train_epoch(self, epoch: int) -> dict[str, Any]:
        """Take the steps of an epoch; return means over steps and processes of what they report."""
        seed = self.options.seed
        layers = stream(seed, Stream.LAYERS, epoch, *process_key(self.rank)).initial_seed()
        reports = []
        plan = EpochPlan(
            seed=seed,
            number=epoch,
            size=self.size,
            crop=self.settings.crop,
            flip=self.settings.flip,
            rank=self.rank,
            world_size=self.world_size,
            weights=self.image_weights,
        )
        steps = steps_of_epoch(
            self.images,
            plan,
            self.method.steps_per_batch,
            self.targets,
            self.device,
            self.options.workers,
        )
        # Backward passes are in these contexts too.
        with seeded(layers, self.device), products(self.device, self.precision):
            for step_input in steps:
                reports.append(self._step(step_input))
                if self.options.seconds is not None and self._is_over(epoch):
                    break
            means = torch.stack(reports).double().mean(dim=0)
            if self.world_size > 1:
                dist.all_reduce(means)
            return named_means((means / self.world_size).tolist())

    def _seconds(self) -> float:
        """Return the seconds of training so far, evaluation excluded."""
        if self._epoch_start is None:
            return self.progress.seconds
        return self.progress.seconds + time.perf_counter() - self._epoch_start

    def _share(self, epochs: float) -> float:
        """Return the share of the training that is done: of its seconds if they are limited."""
        limit = self.options.seconds
        if limit is None:
            return epochs / self.settings.epochs
        if limit == 0:
            return 1.0
        return min(1.0, self._seconds() / limit)

    def _is_over(self, epochs: int) -> bool:
        return self._share(epochs) >= 1

    def _weigh_images(self, epoch: int) -> None:
        """Ask the method how often each image is drawn; the answer of the first process counts."""
        if not isinstance(self.method, WeightsImages):
            return
        weights = self.image_weights
        if weights is None:
            count = len(self.images)
            weights = torch.full((count,), 1 / count, dtype=torch.float64)
        if self.rank == 0:
            accuracies = accuracies_under_noise(
                self.network, self.images, epoch, self.options, self.precision
            )
            weights = self.method.image_weights(epoch, weights, accuracies)
        self.image_weights = processes.from_first_process(weights, self.device)

    def _step(self, step_input: StepInput) -> Tensor:
        """Take one optimizer step.

        Returns:
            The numbers of the step, shape (6,), on the device and without synchronization.
        """
        self.model.zero_grad(set_to_none=True)
        if self.settings.engine == "compiled":
            attack_backend.begin_step(self.device)
        result = self._forward(step_input)
        result.loss.backward()
        norm = nn.utils.get_total_norm(gradients_of(self.model))
        if self.settings.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.settings.clip_norm, norm)
        # All steps of a batch have the learning rate at its middle.
        epoch, batch, _ = step_input.key
        share = self._share(epoch + (batch + 0.5) / self.batches)
        take_step(self.optimizers, learning_rate_at(self.settings, share))
        self._update_average()
        self.progress.updates += 1
        return step_numbers(result, norm)

    def _forward(self, step_input: StepInput) -> Step:
        """Compute the loss of a step."""
        key = (*step_input.key, *process_key(self.rank))
        step: dict[str, Any] = {
            "sigma": self.options.sigma,
            "rng": stream(self.options.seed, Stream.STEP, *key, device=self.device),
            "epoch": step_input.key[0],
        }
        if step_input.targets is not None:
            step["targets"] = step_input.targets
        must = f"the network must take batches of shape {tuple(step_input.x.shape)}"
        try:
            with user_code(must), autocast(self.device, self.precision):
                return self.step_loss(step_input.x, step_input.y, **step)
        except InputError as error:
            if ONE_IMAGE_ERROR not in str(error):
                raise
            raise InputError(
                "training.batch must leave no step of one image to a network that ends in maps of "
                f"one pixel, which batch norm cannot train on, got {self.settings.batch} of "
                f"{len(self.images)} images; choose another batch"
            ) from error

    def _loss(self, x: Tensor, y: Tensor, **step: Any) -> Step:
        return self.method.loss(self.network, x, y, **step)

    def _update_average(self) -> None:
        """Add the weights of this step to their average, which begins with those of the first."""
        if self.average is None or self.settings.ema_decay is None:
            return
        if self.progress.updates == 0:
            self.average.load_state_dict(self.model.state_dict())
        else:
            move_average(self.average, self.model, self.settings.ema_decay)

    def _quick_acr(self) -> float | None:
        """Return the quick ACR every ``eval_every`` epochs and after the last; else ``None``."""
        every = self.settings.eval_every
        if every == 0:
            return None
        epoch = self.progress.epoch
        if epoch % every != 0 and not self._is_over(epoch):
            return None
        return quick_acr(self.trained.eval(), self.evaluation, self.settings, self.options)

    def save(self, checkpoint: Path) -> None:
        """Write model, optimizer, average and progress, in one step."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "average": None if self.average is None else self.average.state_dict(),
            "image_weights": self.image_weights,
            "progress": asdict(self.progress),
        }
        # In memory first: a full disk is then an error of the operating system, not one of torch.
        content = io.BytesIO()
        torch.save(state, content)
        files.write_bytes(checkpoint, content.getvalue())

    def restore(self, checkpoint: Path | None) -> None:
        """Continue from the file that :meth:`save` wrote for the first process, if it exists."""
        state: Any = None
        if self.rank == 0 and checkpoint is not None and checkpoint.exists():
            state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        state = processes.from_first_process(state, self.device)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.image_weights = state["image_weights"]
        self.progress = Progress(**state["progress"])
