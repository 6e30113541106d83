"""The smoothed classifier: CERTIFY and PREDICT (Cohen, Rosenfeld & Kolter 2019, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs.errors import InputError, check_choice
from rs.models.backend import device_of
from rs.models.denoised import check_denoisers
from rs.params import PIXELS, Bounds, check_bounds, check_sigma, describe_bounds
from rs.runtime import Precision
from rs.runtime.device import products
from rs.runtime.streams import Stream
from rs.smoothing import Noise
from rs.smoothing.gradients import LogProbabilities
from rs.smoothing.inputs import (
    Base,
    ImageLike,
    as_image,
    as_module,
    check_can_predict,
    check_draws,
    check_key,
    evaluate,
    evaluating,
    is_whole,
    logits_of,
    user_code,
    warn_if_n_too_small,
)
from rs.smoothing.noise import NOISE_OF_8_BIT, default_batch, is_on_grid, noisy_batches
from rs.smoothing.soft import gradient_of
from rs.smoothing.vote_counting import (
    Tally,
    VoteCounter,
    certificate_of_test,
    sum_of_evaluations,
    winner,
)
from rs.statistics.certificate import Certificate
from rs.statistics.procedures.base import SequentialTest
from rs.statistics.procedures.fixed import FixedTest
from rs.statistics.radius import predicted_class


class SmoothedClassifier:
    """The smoothed classifier g(x) = argmax_c P(base(x + N(0, sigma^2 I)) = c).

    The certificate holds for the base classifier exactly as it runs: its weights, its precision,
    its device.

    Args:
        base: An ``nn.Module``, or any function: inputs (N, ...), such as images (N, C, H, W), noisy
            and not clipped -> logits (N, K), or an output with the attribute ``logits``. A single
            logit z, (N, 1), is the logit of class 1, and class 0 has logit 0: z is not a
            probability. Any normalization is inside. It must be one fixed function of the input:
            modules run in eval mode, and their own mode is then restored; networks that a function
            calls must already be in eval mode (``rs.smoothing.inputs.Function``), and
            ``torch.export`` must have exported in it. If it is ``lazy``, draws are evaluated by its
            method ``evaluate_cascade`` (``rs.ensemble.base.Ensemble``), and members are counted.
        num_classes: K; if ``None``, the number of logits of the first image.
        sigma: Noise standard deviation, in the unit of the inputs, as all radii are; positive and
            required.
        precision: ``bfloat16`` runs ``base`` under autocast. ``tf32``, which only CUDA devices
            have, rounds the inputs of products to 10 bits. The noise is always added in float32.
            Ties are common among bfloat16 logits, and the lowest class gets the vote, so compute
            logits in float32, as this project's networks do (``rs.models.architectures.Logits``).
        batch: Noisy images evaluated at once; above ``rs.smoothing.noise.BLOCK``, rounded down to
            a multiple of it; if ``None``, chosen by the size of an image and the kind of device.
            It does not change the noise.
        noise: ``gaussian``, or ``grid``: rounded to multiples of 1/255, for 8-bit images only.
            With grid noise, rounding cannot break the certificate (``rs.smoothing.noise``).
            ``None`` means ``grid`` for an image with pixels that are multiples of 1/255, of
            whatever type, and ``gaussian`` for any other. A certificate holds for the classifier
            with its noise: pass the same noise to classify nearby images.
        bounds: The least and the largest value of inputs, (0, 1) for images, or ``None`` for
            unbounded ones. Inputs beyond them are refused; noisy copies are not clipped. All
            values get noise of the same sigma, so features should have similar scales. With
            bounds other than (0, 1), the noise is ``gaussian``.

    Raises:
        InputError: If an argument is invalid, or ``base`` has a denoiser for another ``sigma``.

    >>> def always_class_1(x):
    ...     return torch.tensor([0.0, 1.0]).expand(len(x), 2)
    >>> smoothed = SmoothedClassifier(always_class_1, sigma=0.5)
    >>> print(smoothed.certify(torch.zeros(1, 2, 2)))
    class 1, l2 radius 1.2316 in input units, p >= 0.9931, n = 1,000, alpha = 0.001, grid noise
    """

    def __init__(
        self,
        base: Base,
        num_classes: int | None = None,
        sigma: float | None = None,
        *,
        precision: Precision = "float32",
        batch: int | None = None,
        noise: Noise | None = None,
        bounds: Bounds = PIXELS,
    ) -> None:
        if num_classes is not None and not is_whole(num_classes, 2):
            raise InputError(
                f"num_classes must be at least 2, got {num_classes!r}; leave it out to infer it, "
                "and give sigma by name"
            )
        if batch is not None and not is_whole(batch, 1):
            raise InputError(f"batch must be at least 1, got {batch!r}")
        check_choice("precision", precision, get_args(Precision))
        if noise is not None:
            check_choice("noise", noise, get_args(Noise))
        self.bounds = check_bounds(bounds)
        if noise == "grid" and self.bounds != PIXELS:
            raise InputError(
                "noise must be gaussian unless inputs are 8-bit pixels of [0, 1], got grid with "
                f"{describe_bounds(self.bounds)}; leave noise out"
            )
        self.base = as_module(base)
        self.num_classes = num_classes
        self.sigma = check_sigma(sigma, bounds=self.bounds)
        check_denoisers(self.base, self.sigma)
        self.precision = precision
        self.batch = batch
        self.noise = noise
        self.engine = "plain"  # how base is optimized for inference, for the record
        self._checked_shape: torch.Size | None = None  # the last one, unless that of an image

    def certify(
        self,
        x: ImageLike,
        n0: int = 100,
        n: int = 1_000,
        alpha: float = 0.001,
        *,
        seed: int = 0,
        index: int = 0,
        label: int | None = None,
    ) -> Certificate:
        """Return a class and a radius within which g is constant (CERTIFY).

        This holds with probability at least 1 - alpha. The class is the most frequent one among
        ``n0`` draws (ties go to the lowest). Then p is the exact one-sided Clopper-Pearson lower
        bound of its probability, from ``n`` fresh draws. The radius is sigma Phi^-1(p); if p < 1/2,
        the classifier abstains.

        Args:
            x: One input within the bounds, of any number of axes: a tensor or a NumPy array, such
                as an image (C, H, W); a NumPy array of uint8 (C, H, W) or (H, W, C), or a Pillow
                image (``rs.smoothing.inputs.as_image``). uint8 is divided by 255. The
                input is moved to the device of the model.
            n0, n: Numbers of draws, at least 1.
            alpha: Failure probability, in (0, 1).
            seed, index: Key of the noise: image ``index`` with ``seed`` always gets the same draws.
                The guarantee is over the draws, so ``x`` must not be chosen by someone who knows
                them: deploy with a fresh, secret seed.
            label: If given, an image whose selected class is not this one skips its ``n`` draws,
                which changes neither ACR nor accuracies; ``mode`` of the certificate is then
                "shortcut".
        Raises:
            InputError: If an argument is invalid, or ``base`` does not return logits or raises an
                error, which is the cause.
        Warns:
            InputWarning: If ``n`` is so small that every image abstains at ``alpha``.
        """
        image = self._checked(x, alpha, seed, index, label, n0=n0, n=n)
        warn_if_n_too_small(n, alpha)
        return self._certify(image, n0, FixedTest(self.sigma, alpha, n), seed, index, label)

    def certify_many(
        self,
        images: Iterable[ImageLike],
        n0: int = 100,
        n: int = 1_000,
        alpha: float = 0.001,
        *,
        seed: int = 0,
    ) -> list[Certificate]:
        """Certify images one by one, image i with ``index=i``.

        The noise is then that of a data set with these images in this order. ``alpha`` applies to
        each image separately.

        Args:
            images: Any iterable of inputs, such as a list, a generator or an array (N, C, H, W);
                without labels.
            n0, n, alpha, seed: As for :meth:`certify`.
        Raises:
            InputError: As :meth:`certify`, with the position of the image.
        """
        if not isinstance(images, Iterable):
            raise InputError(
                f"images must be several images, got {type(images).__name__}; pass one to certify, "
                "and the images of a data set without labels: (data[i][0] for i in range(n))"
            )
        certificates = []
        for index, x in enumerate(images):
            try:
                certificates.append(self.certify(x, n0, n, alpha, seed=seed, index=index))
            except InputError as error:
                raise type(error)(f"image {index}: {error}") from error
        return certificates

    def certify_until(
        self,
        x: ImageLike,
        n0: int,
        test: SequentialTest,
        *,
        seed: int = 0,
        index: int = 0,
        label: int | None = None,
    ) -> Certificate:
        """Certify with as many samples as a sequential test asks for.

        The certificate is as valid as with a fixed number. The class is selected as by
        :meth:`certify`. Then samples are taken until the test has decided which of its radii hold,
        or its budget is spent; then it may abstain.

        Args:
            x, n0, seed, index, label: As for :meth:`certify`.
            test: A new test with the noise ``sigma`` of this classifier.
        Returns:
            A certificate of ``n`` samples, the number taken. At fixed radii its radius is the
            largest that holds.
        Raises:
            InputError: As :meth:`certify`, or if the test has counted samples already, or is one of
                another ``sigma``.
        """
        if test.draws:
            raise InputError(
                f"test must be new, but it has counted {test.draws} samples already; make one per "
                "image"
            )
        if test.sigma != self.sigma:
            raise InputError(
                f"test must have this classifier's sigma, {self.sigma}, got {test.sigma}; make it "
                "with the noise that is added"
            )
        image = self._checked(x, test.alpha, seed, index, label, n0=n0)
        return self._certify(image, n0, test, seed, index, label)

    def _certify(
        self, x: Tensor, n0: int, test: SequentialTest, seed: int, index: int, label: int | None
    ) -> Certificate:
        """Certify an image whose arguments have been checked."""
        noise = self.noise_of(x)
        first = self.tally(x, n0, seed, Stream.SELECT, index)
        selected = winner(first.votes)
        if label is not None and selected != label:
            return certificate_of_test(first, None, test, noise)
        tallies: list[Tally] = []
        while draws := test.next_draws():
            tally = self.tally(x, draws, seed, Stream.ESTIMATE, index, start=test.draws)
            test.update(int(tally.votes[selected]), draws)
            tallies.append(tally)
        votes = sum((tally.votes for tally in tallies), np.zeros_like(first.votes))
        second = Tally(votes, sum_of_evaluations(tallies))
        return certificate_of_test(first, second, test, noise)

    def predict(
        self, x: ImageLike, n: int = 1_000, alpha: float = 0.001, *, seed: int = 0, index: int = 0
    ) -> int:
        """Return the class of g(x), or ABSTAIN; wrong with probability at most alpha (PREDICT).

        A two-sided binomial test of the two largest counts of ``n`` draws against 1/2 (Hung &
        Fithian 2019). As for :meth:`certify`, ``x`` must not be chosen by someone who knows
        ``seed``.

        Raises:
            InputError: As :meth:`certify`, or if ``n`` is so small that every image abstains at
                ``alpha``.
        """
        image = self._checked(x, alpha, seed, index, n=n)
        check_can_predict(n, alpha)
        counts = self.votes(image, n, seed, Stream.PREDICT, index)
        return predicted_class(counts, alpha)

    def votes(
        self, x: Tensor, draws: int, seed: int, *key: int, start: int = 0
    ) -> NDArray[np.int64]:
        """Count the votes of ``base`` on ``draws`` noisy copies of ``x``.

        Args:
            x: One image, shape (C, H, W).
            draws: Number of noisy copies.
            seed, key: Key of the noise, which is drawn in blocks.
            start: First draw, a multiple of ``rs.smoothing.noise.BLOCK``.
        Returns:
            Votes per class, shape (K,); counted on the device and fetched once.
        """
        return self.tally(x, draws, seed, *key, start=start).votes

    def tally(self, x: Tensor, draws: int, seed: int, *key: int, start: int = 0) -> Tally:
        """Count votes as :meth:`votes` does, and the evaluations of members of a cascade."""
        counter = VoteCounter(1, self._classes(x), x.device)
        base: Any = self.base  # an ensemble, if it is lazy
        is_cascade = getattr(base, "lazy", False)
        evaluations = 0
        with self.evaluation_mode(x):
            batches = self.noisy_copies(x, draws, seed, *key, start=start)
            if is_cascade:
                for scores, evaluated in base.evaluate_cascade(batches):
                    counter.add(scores[None], len(scores))
                    evaluations += evaluated
            else:
                for batch in batches:
                    logits = evaluate(base, batch).to(x.device)
                    counter.add(logits[None], len(batch))
        return Tally(counter.fetch()[0], evaluations if is_cascade else None)

    def samples(
        self,
        x: Tensor,
        count: int,
        *,
        seed: int,
        index: int,
        stream: Stream = Stream.ESTIMATE,
        start: int = 0,
    ) -> tuple[Tensor, list[int]]:
        """Return noisy copies of an image, by default the first that certify it, and their votes.

        Args:
            x: One image, shape (C, H, W).
            count: Number of copies.
            seed, index: As for :meth:`certify`.
            stream: What the noise is for.
            start: First sample, a multiple of ``rs.smoothing.noise.BLOCK``.
        Returns:
            The copies, shape (``count``, C, H, W), and the class of each.
        """
        with self.evaluation_mode(x):
            batches = self.noisy_copies(x, count, seed, stream, index, start=start)
            copies = torch.cat([*batches])
            votes = evaluate(self.base, copies).argmax(dim=1)
        return copies, votes.tolist()

    def as_module(self, samples: int, *, seed: int = 0) -> LogProbabilities:
        """Return the soft smoothed classifier as a differentiable module, for attack libraries.

        See :class:`rs.smoothing.gradients.LogProbabilities`; it runs in float32.

        Args:
            samples: Noisy copies of each image, at least 1.
            seed: Of the noise, which is not the noise of certificates.
        Raises:
            InputError: If an argument is not what it must be.
        """
        return LogProbabilities(self.base, self.sigma, samples, seed, bounds=self.bounds)

    def loss_and_gradient(
        self, x: ImageLike, label: int, samples: int, *, seed: int = 0
    ) -> tuple[float, Tensor]:
        """Return -log z_hat(x)[label] of the soft smoothed classifier and its gradient (C, H, W).

        Args:
            x, label: An image, as for :meth:`certify`, and its class.
            samples, seed: As for :meth:`as_module`.
        Raises:
            InputError: If an argument is not what it must be, or ``base`` has no gradient.
        """
        image = self._checked(x, 0.5, seed, 0, label)
        log_probabilities = self.as_module(samples, seed=seed)
        with user_code("base must be differentiable for a gradient"):
            losses, gradients = gradient_of(
                lambda points: -log_probabilities(points)[:, int(label)], image[None]
            )
        return float(losses), gradients[0]

    def base_class(self, x: Tensor) -> int:
        """Return the class that ``base`` gives to an image (C, H, W) without noise."""
        with self.evaluation_mode(x):
            return int(evaluate(self.base, x[None].clone()).argmax())

    def noise_of(self, x: Tensor) -> Noise:
        """Return the noise that is added to an input."""
        if self.noise is not None:
            return self.noise
        is_8_bit = self.bounds == PIXELS and is_on_grid(x)
        return NOISE_OF_8_BIT if is_8_bit else "gaussian"

    def _checked(
        self,
        x: ImageLike,
        alpha: float,
        seed: int,
        index: int,
        label: int | None = None,
        **draws: int,
    ) -> Tensor:
        """Check the arguments of a certificate, and return the image as :meth:`votes` takes it."""
        image = as_image(x, self.bounds)
        image = image.to(device_of(self.base, image))
        check_key(seed=seed, index=index)
        check_draws(image, alpha, self.bounds, **draws)
        self._check_shape(image)
        if label is None:
            return image
        classes = self._classes(image)
        if label not in range(classes):  # every image would take the shortcut
            raise InputError(
                f"label must be a class, a whole number from 0 to {classes - 1}, got {label!r}; "
                "leave it out where it is not known"
            )
        return image

    def _check_shape(self, x: Tensor) -> None:
        """Check that ``base`` takes inputs of a shape that is not that of images, (C, H, W).

        It is tried on two copies: some layers would take one as an image without its first axis.
        """
        if x.ndim == 3 or x.shape == self._checked_shape:
            return
        shape = tuple(x.shape)
        must = f"base must take inputs of shape {shape}, each in a batch (N, ...)"
        remedy = {
            2: "; gray images have the shape (1, H, W): x[None], or images[:, None] of several",
            4: "; several images go to certify_many",
        }.get(x.ndim, "")
        with user_code(must + remedy), self.evaluation_mode(x):
            logits = logits_of(self.base(torch.stack([x, x])))
        if len(logits) != 2:
            raise InputError(f"{must}, got logits of shape {tuple(logits.shape)} for two{remedy}")
        self._checked_shape = x.shape

    def _classes(self, x: Tensor) -> int:
        """Return K; if it is not known yet, from the logits of ``x``."""
        if self.num_classes is None:
            with self.evaluation_mode(x):
                shape = tuple(evaluate(self.base, x[None].clone()).shape)
            if len(shape) != 2 or shape[1] < 2:
                raise InputError(
                    f"base must return logits (1, K) of one image, K at least 2, got {shape}; look "
                    "at its last layer"
                )
            self.num_classes = shape[1]
        return self.num_classes

    @contextmanager
    def evaluation_mode(self, x: Tensor) -> Iterator[None]:
        """Set the modes that ``base`` runs in.

        It may record gradients of its own, which torch's inference mode would forbid.
        """
        with torch.no_grad(), evaluating(self.base), autocast(x.device, self.precision):
            yield

    def noisy_copies(
        self, x: Tensor, draws: int, seed: int, *key: int, start: int = 0
    ) -> Iterator[Tensor]:
        """Yield ``draws`` noisy copies of ``x`` in batches, each of shape (<= batch, C, H, W).

        The arguments are those of :meth:`votes`.
        """
        draw_range = range(start, start + draws)
        batch = self.batch or default_batch(x)
        return noisy_batches(x, self.noise_of(x), self.sigma, draw_range, batch, seed, *key)


@contextmanager
def autocast(device: torch.device, precision: Precision) -> Iterator[None]:
    """Run in a precision: under torch's autocast for bfloat16, with products in TF32 for tf32.

    Raises:
        InputError: If the precision is tf32 and the device is not a CUDA device.
    """
    is_enabled = precision == "bfloat16"
    with (
        products(device, precision),
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=is_enabled),
    ):
        yield
