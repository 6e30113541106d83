"""The one training loop: every method, every data set, one process or several.

Several processes, as ``torchrun`` starts them, each take steps on their share of the images, with
noise of their own; ``torch.nn.parallel.DistributedDataParallel`` averages the gradients and gives
every process the running statistics of the first one. Batch norm normalises by the images of its
own process, as the field's code does.
"""

from __future__ import annotations

import io
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.sgd import sgd
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from rs.data import images as data
from rs.data.prepared import Epoch, Images
from rs.errors import InputError
from rs.methods.base import Method, Step, WeightsImages
from rs.runtime import processes
from rs.runtime.device import check_precision, precision_on, products, warn_of_slow_bfloat16
from rs.runtime.progress import progress
from rs.runtime.streams import Stream, process_key, seeded, stream
from rs.smoothing.classifier import autocast
from rs.storage import files
from rs.training import attack_backend, warnings
from rs.training.history import STEP_NUMBERS, Progress, quick_acr, step_numbers
from rs.training.image_votes import vote_shares
from rs.training.recipe import RunOptions, Training

MOST_EPOCHS = 100_000
"""Epochs at which a training with a limit of seconds ends at the latest."""

ONE_IMAGE_ERROR = "Expected more than 1 value per channel when training"
"""What torch's batch norm says of one image with one pixel a channel."""


class Trainer:
    """One training: a model, a method and a data set at one noise level.

    Every random number is keyed by (seed, purpose, epoch, step, process), so a training that stops
    and resumes from its checkpoint ends, on the CPU, with the same bytes as an unbroken one. (More
    than two processes add gradients up in another order in the first step after that.)

    Args:
        model: As built, on ``options.device``; trained in place.
        method: What a step minimises.
        images: The training split.
        evaluation: The split of the quick ACR.
        settings: How to train.
        options: Noise level, seed, device and limits of this run.
        targets: Class probabilities of each image, shape (N, K), for methods that need them.
    Raises:
        InputError: If a step would have less than one image of each process, or the settings do not
            suit several processes.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        images: Images,
        evaluation: Images,
        settings: Training,
        options: RunOptions,
        targets: Tensor | None = None,
    ) -> None:
        self.model, self.method, self.images, self.evaluation = model, method, images, evaluation
        self.settings, self.options, self.device = settings, options, options.device
        self.targets = targets if targets is None else targets.to(options.device)
        self.rank, self.world_size = processes.rank_and_world_size()
        self._check()
        self.precision = precision_on(self.device, settings.precision)
        check_precision(self.device, self.precision)
        warn_of_slow_bfloat16(self.device.type, self.precision)
        self.parameters: list[Tensor] = [
            parameter for parameter in model.parameters() if parameter.requires_grad
        ]
        alone = (
            self.world_size == 1
        )  # else compiling, which tries a backward pass, would set off the averaging
        slower = (
            self.device.type == "cpu" and self.precision == "bfloat16"
        )  # compiled batch norms are
        shape = images.meta.shape
        compiles = alone and not slower
        self.network = attack_backend.training_network(
            model, settings.engine, shape, compile_training=compiles
        )
        self.step_loss = (
            self._loss if alone else DistributedDataParallel(StepLoss(model, self._loss))
        )
        self.velocities: list[Tensor | None] = [None] * len(self.parameters)
        self.average: AveragedModel | None = (
            None  # of weights and running statistics, w <- decay w + (1 - decay) w'
        )
        if settings.ema_decay is not None:
            averaging = get_ema_multi_avg_fn(settings.ema_decay)
            self.average = AveragedModel(model, multi_avg_fn=averaging, use_buffers=True)
        self.image_weights: Tensor | None = (
            None  # probabilities of the images of an epoch, drawn with replacement
        )
        self.progress = Progress()
        self._began: float | None = None  # when the epoch began that is running

    @property
    def trained(self) -> nn.Module:
        """The model to evaluate and to keep: the average of the weights where the settings ask for
        it.
        """
        return self.model if self.average is None else self.average.module

    def _check(self) -> None:
        batch, world, steps = self.settings.batch, self.world_size, self.method.steps_per_batch
        if batch % world:
            raise InputError(
                f"training.batch must be divisible by the number of processes, got {batch} and "
                f"{world}"
            )
        if min(batch, len(self.images)) // world < steps:
            raise InputError(
                "training.batch and the train split must be at least the number of draws, "
                f"{steps}, because a step "
                f"takes batch // draws images; got {batch} and {len(self.images)}"
                + (f" for {world} processes" if world > 1 else "")
            )
        if world > 1 and self.options.seconds is not None:
            raise InputError(
                "seconds must not be limited where several processes train together: their clocks "
                "differ"
            )

    def run(self, checkpoint: Path | None = None) -> Progress:
        """Train to the last epoch, from ``checkpoint`` if it is there; save into it every few
        epochs.

        Args:
            checkpoint: A file; of several processes the first one's counts.
        Raises:
            InputError: If the loss or its gradient becomes NaN or infinite, or a step has one image
                that batch norm cannot train on; the last checkpoint stays.
        """
        self.restore(checkpoint)
        limit, saved = self.options.seconds, checkpoint if self.rank == 0 else None
        remaining = range(self.progress.epoch, self.settings.epochs)
        if limit is not None:
            remaining = range(self.progress.epoch, MOST_EPOCHS)
        shown = self.rank == 0 and limit is None
        for epoch in (
            progress(remaining, remaining.stop, "train", remaining.start) if shown else remaining
        ):
            if epoch > 0 and self._is_over():
                break
            self.epoch(epoch)
            if saved is not None and (epoch + 1) % self.settings.checkpoint_every == 0:
                self.save(saved)
        self.trained.eval()
        return self.progress

    def epoch(self, epoch: int) -> None:
        """Train one epoch and append its row to the history."""
        self._began = start = time.perf_counter()
        self._weigh_images(epoch)
        self.model.train()
        self.network.train()
        attack_backend.freeze_norms(self.model)
        layers = stream(
            self.options.seed, Stream.LAYERS, epoch, *process_key(self.rank)
        ).initial_seed()
        with (
            seeded(layers, self.device),
            products(self.device, self.precision),
        ):  # backward passes too
            reports = []
            for x, y, targets, key in self._steps(epoch):
                reports.append(self._step(x, y, key, **targets))
                if self._share(0.0) >= 1:
                    break
            means = self._means(reports)
        if not (math.isfinite(means["loss"]) and math.isfinite(means["gradient_norm"])):
            raise InputError(
                f"the loss must stay finite, but epoch {epoch + 1} gave {means['loss']} and a "
                "gradient of norm "
                f"{means['gradient_norm']}; lower learning_rate or lam, or set clip_norm"
            )
        if epoch == 0 and self.rank == 0:
            warnings.warn_of_chance(means["accuracy"], self.images.labels)
        now = self.progress
        now.epoch, now.seconds = epoch + 1, now.seconds + time.perf_counter() - start
        self._began = None
        rate = self._learning_rate(self._share(epoch + 0.5))
        row = {
            "epoch": epoch + 1,
            "updates": now.updates,
            "learning_rate": rate,
            **means,
            "acr": self._quick_acr(),
        }
        now.history.append(row)
        now.timing.append({"epoch": epoch + 1, "seconds": now.seconds})
        if self.options.on_epoch is not None:
            self.options.on_epoch(row)

    def _is_over(self) -> bool:
        return self.options.seconds is not None and self.progress.seconds >= self.options.seconds

    def _share(self, passed: float) -> float:
        """Return the share of the training that is done: of its time where that is limited, else of
        its epochs.
        """
        if self.options.seconds is None:
            return passed / self.settings.epochs
        seconds = self.progress.seconds
        if self._began is not None:
            seconds += time.perf_counter() - self._began
        return min(1.0, seconds / self.options.seconds) if self.options.seconds else 1.0

    def _learning_rate(self, share: float) -> float:
        """Return the learning rate after a share of the training: by steps, or linearly up from 0
        and down again.
        """
        s = self.settings
        if s.schedule == "step":
            return s.learning_rate * s.decay ** sum(
                milestone <= share * s.epochs for milestone in s.milestones
            )
        return s.learning_rate * min(share / s.ramp, (1 - share) / (1 - s.ramp))

    def _rate_of(self, epoch: int, batch: int) -> float:
        """Return the rate of the steps of a batch: that of its middle."""
        batches = -(
            -(len(self.images) // self.world_size) // (self.settings.batch // self.world_size)
        )
        return self._learning_rate(self._share(epoch + (batch + 0.5) / batches))

    def _weigh_images(self, epoch: int) -> None:
        """Ask the method how often each image is drawn; the answer of the first process counts."""
        if not isinstance(self.method, WeightsImages):
            return
        count, calls = len(self.images), itertools.count()

        def accuracies(numbers: Tensor, draws: int) -> Tensor:
            rng = stream(self.options.seed, Stream.VOTES, epoch, next(calls), device=self.device)
            with autocast(self.device, self.precision):
                shares = vote_shares(
                    self.network,
                    self.images,
                    numbers,
                    draws,
                    self.options.sigma,
                    rng,
                    self.options.workers,
                )
            return shares.gather(
                1, torch.from_numpy(self.images.labels)[numbers].unsqueeze(1)
            ).squeeze(1)

        weights: list[Tensor | None] = [self.image_weights]
        if self.rank == 0:
            equal = torch.full((count,), 1 / count, dtype=torch.float64)
            weights = [
                self.method.image_weights(
                    epoch, equal if weights[0] is None else weights[0], accuracies
                )
            ]
        if self.world_size > 1:
            dist.broadcast_object_list(weights, device=self.device)
        (self.image_weights,) = weights

    def _steps(
        self, epoch: int
    ) -> Iterator[tuple[Tensor, Tensor, dict[str, Tensor], tuple[int, int, int]]]:
        """Yield images, labels and, for methods that need them, targets of each optimiser step, and
        its key.

        The key is the number of the epoch, of the batch and of the step in the batch.

        A batch makes ``steps_per_batch`` equal steps; what does not divide is left out, as is a
        batch that is too small.
        """
        s, steps = self.settings, self.method.steps_per_batch
        share = Epoch(
            seed=self.options.seed,
            number=epoch,
            size=s.batch // self.world_size,
            crop=s.crop,
            flip=s.flip,
            rank=self.rank,
            world_size=self.world_size,
            weights=self.image_weights,
        )
        order = data.epoch_order(len(self.images), share)
        numbers = order.to(self.device).split(share.size)
        for batch, (x, y) in enumerate(
            self.images.batches(order, share, self.device, self.options.workers)
        ):
            size = len(x) // steps
            for step in range(steps if size else 0):
                chosen = slice(step * size, (step + 1) * size)
                targets = (
                    {}
                    if self.targets is None
                    else {"targets": self.targets[numbers[batch][chosen]]}
                )
                yield x[chosen], y[chosen], targets, (epoch, batch, step)

    def _step(self, x: Tensor, y: Tensor, key: tuple[int, int, int], **targets: Tensor) -> Tensor:
        """Take one optimiser step.

        Args:
            x: Images of this process, shape (B, C, H, W).
            y: Labels, shape (B,).
            key: Number of the epoch, of the batch and of the step in the batch.
            targets: Of these images, (B, K), if the method needs them.
        Returns:
            What the step reports, shape (6,), on the device and without synchronisation.
        """
        rng = stream(
            self.options.seed, Stream.STEP, *key, *process_key(self.rank), device=self.device
        )
        self.model.zero_grad(set_to_none=True)
        if self.settings.engine == "compiled":
            attack_backend.begin_step(self.device)
        try:
            with autocast(self.device, self.precision):
                result = self.step_loss(
                    x, y, sigma=self.options.sigma, rng=rng, epoch=key[0], **targets
                )
        except ValueError as error:
            if ONE_IMAGE_ERROR not in str(error):
                raise
            raise InputError(
                "training.batch must leave no step of one image to a network that ends in maps of "
                "one pixel, which "
                f"batch norm cannot train on, got {self.settings.batch} of {len(self.images)} "
                "images; take another"
            ) from error
        result.loss.backward()
        norm = nn.utils.get_total_norm(self._gradients())
        if self.settings.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.settings.clip_norm, norm)
        self._sgd_step(self._rate_of(*key[:2]))
        if self.average is not None:
            self._update_average(self.average)
        self.progress.updates += 1
        return step_numbers(result, norm)

    def _loss(self, x: Tensor, y: Tensor, **step: Any) -> Step:
        return self.method.loss(self.network, x, y, **step)

    def _gradients(self) -> list[Tensor]:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if len(gradients) < len(self.parameters):
            names = [
                name
                for name, value in self.model.named_parameters()
                if value.requires_grad and value.grad is None
            ]
            raise InputError(
                f"the loss must depend on every parameter that is trained, but {len(names)} have "
                "no gradient, first "
                f"{names[0]}; leave such layers out of the network, or name the others with "
                "--trainable"
            )
        return gradients

    def _sgd_step(self, rate: float) -> None:
        """Update the parameters by torch's own SGD, in its functional form, since the class imports
        the compiler.
        """
        with torch.no_grad():
            sgd(
                self.parameters,
                self._gradients(),
                self.velocities,
                lr=rate,
                momentum=self.settings.momentum,
                weight_decay=self.settings.weight_decay,
                dampening=0.0,
                nesterov=self.settings.nesterov,
                maximize=False,
            )

    def _update_average(self, average: AveragedModel) -> None:
        """Update the average of the weights; on a GPU without ``AveragedModel``, which waits for
        the GPU.
        """
        if self.device.type != "cuda" or average.n_averaged == 0:
            average.update_parameters(self.model)
            return
        with torch.no_grad():
            ours, theirs = self._floats(average.module), self._floats(self.model)
            get_ema_multi_avg_fn(self.settings.ema_decay)(ours, theirs, 0)

    @staticmethod
    def _floats(module: nn.Module) -> list[Tensor]:
        return [
            value
            for value in (*module.parameters(), *module.buffers())
            if value.is_floating_point()
        ]

    def _means(self, reports: list[Tensor]) -> dict[str, Any]:
        """Return means over steps and processes; ``None`` where a method has no such number."""
        total = torch.stack(reports).double().mean(dim=0)
        if self.world_size > 1:
            dist.all_reduce(total)
        means = (total / self.world_size).tolist()
        return {
            name: None if name == "hinge_share" and math.isnan(mean) else mean
            for name, mean in zip(STEP_NUMBERS, means, strict=True)
        }

    def _quick_acr(self) -> float | None:
        """Return the ACR of a few draws on a few images, at the epochs that ask for it."""
        s, epoch = self.settings, self.progress.epoch
        last = epoch == s.epochs if self.options.seconds is None else self._is_over()
        if s.eval_every == 0 or (epoch % s.eval_every and not last):
            return None
        return quick_acr(self.trained.eval(), self.evaluation, s, self.options)

    def save(self, checkpoint: Path) -> None:
        """Write model, velocities, average and progress, in one step."""
        state = {
            "model": self.model.state_dict(),
            "velocities": self.velocities,
            "image_weights": self.image_weights,
        }
        state |= {} if self.average is None else {"average": self.average.state_dict()}
        content = (
            io.BytesIO()
        )  # a full disk is an error of the operating system, not one of torch's
        torch.save({**state, "progress": asdict(self.progress)}, content)
        files.write_bytes(checkpoint, content.getvalue())

    def restore(self, checkpoint: Path | None) -> None:
        """Continue from what :meth:`save` wrote, if it is there; several processes from what the
        first one finds.
        """
        states: list[Any] = [None]
        if self.rank == 0 and checkpoint is not None and checkpoint.exists():
            states = [torch.load(checkpoint, map_location="cpu", weights_only=True)]
        if self.world_size > 1:
            dist.broadcast_object_list(states, device=self.device)
        (state,) = states
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.velocities = [
                velocity if velocity is None else velocity.to(self.device)
                for velocity in state["velocities"]
            ]
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            self.image_weights = state["image_weights"]
            self.progress = Progress(**state["progress"])


class StepLoss(nn.Module):
    """The loss of a step as one module, for ``DistributedDataParallel`` to wrap.

    Its backward pass is the only one that reaches the parameters: attacks ask for gradients in the
    image alone.

    Args:
        model: Whose gradients are averaged.
        loss: What a step minimises; it may call the model more than once.
    """

    def __init__(self, model: nn.Module, loss: Callable[..., Step]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *inputs: Any, **settings: Any) -> Step:
        """Return what the loss returns."""
        return self.loss(*inputs, **settings)
