"""The smoothed classifier: CERTIFY and PREDICT (Cohen, Rosenfeld & Kolter 2019, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, Protocol, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs.errors import InputError
from rs.models import Precision
from rs.models.backend import device_of
from rs.params import check_sigma
from rs.runtime.device import products
from rs.runtime.streams import Stream
from rs.smoothing import Noise
from rs.smoothing.attack import evaluating
from rs.smoothing.inputs import (
    Base,
    ImageLike,
    as_image,
    as_module,
    check_draws,
    check_key,
    evaluate,
    is_number,
    warn_if_n_too_small,
)
from rs.smoothing.noise import BLOCK, NOISE_OF_8_BIT, is_on_grid, noisy_batches
from rs.smoothing.vote_counting import (
    Tally,
    VoteCounter,
    certificate_of_votes,
    evaluations_of,
    winner,
)
from rs.statistics.certificate import ABSTAIN, Certificate
from rs.statistics.radius import fewest_draws


class Run(Protocol):
    """A sequential test of one image that says how many draws to take; the runs of
    :mod:`rs.statistics.sequential`.
    """

    alpha: float  # failure probability of the certificate
    sigma: float  # noise of its radii, in pixels of [0, 1]
    draws: int  # taken so far

    @property
    def mode(self) -> str:
        """Mode of the certificate."""

    def next_draws(self) -> int:
        """Return how many draws to take next; 0 ends the run."""

    def update(self, successes: int, draws: int) -> Any:
        """Count the votes for the selected class among new draws."""

    def certified(self) -> tuple[float, float | None]:
        """Return a lower bound of the class probability, and the certified radius or ``None``."""


class Cascading(Protocol):
    """A base classifier that evaluates more members on some images than on others; its attribute
    ``lazy`` is true.
    """

    def evaluate_cascade(self, batches: Iterable[Tensor]) -> Iterator[tuple[Tensor, int]]:
        """Yield the scores of all images, in any order, and the evaluations of members that they
        took.
        """


class SmoothedClassifier:
    """The smoothed classifier g(x) = argmax_c P(base(x + N(0, sigma^2 I)) = c).

    The certificate holds for the base classifier exactly as it runs: its weights, its precision,
    its device.

    Args:
        base: An ``nn.Module``, or any function: images (N, C, H, W), noisy and not clipped ->
            logits (N, K), or an output with the attribute ``logits``. Any normalisation is inside
            it. It must be one fixed function of the image: modules are evaluated in eval mode,
            whatever mode they are in, and then restored; networks that a function calls must be in
            it already (``rs.smoothing.inputs.Function``), and ``torch.export`` must have exported
            in it. If it is ``lazy``, draws are evaluated by its method ``evaluate_cascade``
            (``rs.ensemble.base.Ensemble``), and members are counted.
        num_classes: K; if ``None``, the number of logits of the first image.
        sigma: Noise standard deviation, in pixels of [0, 1]; positive. It must be given.
        precision: ``bfloat16`` runs ``base`` under autocast, and ``tf32``, which only a CUDA device
            has, rounds the inputs of its products to 10 bits; the noise is added in float32 either
            way. Logits in bfloat16 are sometimes equal, and such a draw is a vote for the lowest
            class: networks of this project compute theirs in float32, and yours should too
            (``rs.models.architectures.Logits``).
        batch: Noisy images evaluated at once; above ``rs.smoothing.noise.BLOCK`` rounded down to
            blocks; if ``None``, chosen by the size of an image and the kind of device. It does not
            change the noise.
        noise: ``gaussian``, or ``grid``: rounded to multiples of 1/255, for 8-bit images only. With
            it the certificate holds as the theorem says it, whatever rounding does
            (``rs.smoothing.noise``). ``None`` is ``grid`` for an image whose pixels are multiples
            of 1/255, of whatever type, and ``gaussian`` for any other. A certificate holds for the
            classifier with its noise: pass that noise to classify nearby images.
        undecided: ``base`` returns K + 1 scores, and a draw whose last one is the largest is a vote
            for no class. It counts against every class: if the ``n0`` draws select it, the
            classifier abstains. A ``base`` with an attribute ``undecided`` that is true, such as an
            ensemble, says so itself. A classifier that rejects noisy images needs this: K equal
            logits are a vote for class 0, and NaN is refused.
        engine: How ``base`` was optimized for inference (``rs.certification.inference``); kept for
            the record.

    Raises:
        InputError: If an argument is not what it must be.

    >>> smoothed = SmoothedClassifier(lambda x: torch.tensor([0.0, 1.0]).expand(len(x), 2), sigma=0.5)
    >>> print(smoothed.certify(torch.zeros(1, 2, 2)))
    class 1, l2 radius 1.2316 in pixels of [0, 1], p >= 0.9931, n = 1,000, alpha = 0.001, grid noise
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
        undecided: bool = False,
        engine: str = "plain",
    ) -> None:
        if num_classes is not None and (not is_number(num_classes, Integral) or num_classes < 2):
            raise InputError(
                f"num_classes must be at least 2, got {num_classes!r}; leave it out to infer it, "
                "and give sigma by name"
            )
        chosen_noise = "gaussian" if noise is None else noise
        for name, value, names in (
            ("precision", precision, Precision),
            ("noise", chosen_noise, Noise),
        ):
            if value not in get_args(names):
                raise InputError(
                    f"{name} must be one of {', '.join(get_args(names))}; got {value!r}"
                )
        if batch is not None and (not is_number(batch, Integral) or batch < 1):
            raise InputError(f"batch must be at least 1, got {batch!r}")
        self.base, self.num_classes, self.sigma = as_module(base), num_classes, check_sigma(sigma)
        self.precision, self.batch, self.noise = precision, batch, noise
        self.undecided, self.engine = (
            undecided or bool(getattr(self.base, "undecided", False)),
            engine,
        )

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
        """Return a class and a radius within which g is constant, with probability at least 1 -
        alpha (CERTIFY).

        The class is the most frequent one among ``n0`` draws (ties to the lowest). From ``n`` fresh
        draws p is the exact one-sided Clopper-Pearson lower bound of its probability; R = sigma
        Phi^-1(p), or abstention if p < 1/2.

        Args:
            x: One image: a tensor or a NumPy array (C, H, W) in [0, 1], a NumPy array of uint8 (C,
                H, W) or (H, W, C), or a Pillow image (``rs.smoothing.inputs.as_image``). uint8 is
                divided by 255. It is moved to the device of the model.
            n0, n: Numbers of draws, at least 1.
            alpha: Failure probability, in (0, 1).
            seed, index: Key of the noise: image ``index`` with ``seed`` always gets the same draws.
                The guarantee is over the draws, so ``x`` must not be chosen by someone who knows
                them: deploy with a fresh, secret seed.
            label: The evaluation shortcut, if given: an image whose selected class is not this one
                skips its ``n`` draws, which changes neither ACR nor accuracies; ``mode`` of the
                certificate is then "shortcut".
        Raises:
            InputError: If an argument is not what it must be, ``base`` returns something else than
                logits, or it is a plain function and raises an error, which is the cause.
        Warns:
            InputWarning: If ``n`` is so small that every image abstains at ``alpha``.
        """
        x = self._checked(x, alpha, seed, index, label, n0=n0, n=n)
        warn_if_n_too_small(n, alpha)
        first = self.tally(x, n0, seed, Stream.SELECT, index)
        needs_more = label is None or winner(first.votes, self.undecided) == label
        second = self.tally(x, n, seed, Stream.ESTIMATE, index) if needs_more else None
        return certificate_of_votes(
            first, second, alpha, self.sigma, self.noise_of(x), undecided=self.undecided
        )

    def certify_many(
        self,
        images: Iterable[ImageLike],
        n0: int = 100,
        n: int = 1_000,
        alpha: float = 0.001,
        *,
        seed: int = 0,
    ) -> list[Certificate]:
        """Certify images one after the other: ``[certify(x, ..., index=i) for i, x in
        enumerate(images)]``.

        So the noise is that of a data set with these images in this order; ``alpha`` is for each
        image alone.

        Args:
            images: Any iterable, such as a list, a generator or an array (N, C, H, W); without
                labels.
            n0, n, alpha, seed: As for :meth:`certify`.
        Raises:
            InputError: As :meth:`certify`, with the position of the image.
        """
        if not isinstance(images, Iterable):
            raise InputError(
                f"images must be several images, got {type(images).__name__}; give one to certify"
            )
        shape = tuple(getattr(images, "shape", ()))
        if len(shape) == 3:
            raise InputError(
                "images must be several images, an array of shape (N, C, H, W), got shape "
                f"{shape}; give one image to "
                "certify, and grey ones as images[:, None]"
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
        run: Run,
        *,
        seed: int = 0,
        index: int = 0,
        label: int | None = None,
    ) -> Certificate:
        """Certify with as many draws as ``run`` asks for; as valid as with a fixed number.

        The class is selected as by :meth:`certify`. Then draws are taken until the run has decided
        which of its radii hold, or expects too little of further draws, or its budget is spent, in
        which case it may abstain.

        Args:
            x, n0, seed, index, label: As for :meth:`certify`.
            run: A fresh run with the noise ``sigma`` of this classifier.
        Returns:
            A certificate of ``n`` draws, the number taken. At fixed radii its radius is the largest
            that holds.
        Raises:
            InputError: As :meth:`certify`, or if the run has counted draws already, or is one of
                another ``sigma``.
        """
        self._check_run(run)
        x = self._checked(x, run.alpha, seed, index, label, n0=n0)
        first = self.tally(x, n0, seed, Stream.SELECT, index)
        selected = winner(first.votes, self.undecided)
        if label is not None and selected != label:
            return certificate_of_votes(
                first, None, run.alpha, self.sigma, self.noise_of(x), undecided=self.undecided
            )
        second, counts = [], np.zeros_like(first.votes)
        while selected != ABSTAIN and (draws := run.next_draws()):
            second.append(
                self.tally(x, draws, seed, Stream.ESTIMATE, index, start=int(counts.sum()))
            )
            counts += second[-1].votes
            run.update(int(second[-1].votes[selected]), draws)
        drawn = Tally(counts, evaluations_of(second))
        of_votes = certificate_of_votes(
            first, drawn, run.alpha, self.sigma, self.noise_of(x), undecided=self.undecided
        )
        p_lower, certified = run.certified()
        predict, r = (
            (ABSTAIN, 0.0) if certified is None or selected == ABSTAIN else (selected, certified)
        )
        return replace(of_votes, predict=predict, radius=r, p_lower=p_lower, mode=run.mode)

    def predict(
        self, x: ImageLike, n: int = 1_000, alpha: float = 0.001, *, seed: int = 0, index: int = 0
    ) -> int:
        """Return the class of g(x), or ABSTAIN; wrong with probability at most alpha (PREDICT).

        A two-sided binomial test of the two largest counts of ``n`` draws against 1/2 (Hung &
        Fithian 2019); of the largest count against all others if draws may be votes for no class.
        As for :meth:`certify`, ``x`` must not be chosen by someone who knows ``seed``.

        Raises:
            InputError: As :meth:`certify`, or if ``n`` is so small that every image abstains at
                ``alpha``.
        """
        from scipy.stats import (
            binomtest,
        )  # a third of a second to import, which CERTIFY does not need

        x = self._checked(x, alpha, seed, index, n=n)
        least = fewest_draws(alpha / 2)  # the test is two-sided
        if n < least:
            raise InputError(
                f"n must be at least {least} at alpha = {alpha}, got {n}; even a unanimous vote of "
                f"{n} abstains"
            )
        counts = self.tally(x, n, seed, Stream.PREDICT, index).votes
        classes = counts[: len(counts) - self.undecided]
        second, first = (int(count) for count in np.sort(classes)[-2:])
        trials = n if self.undecided else first + second
        significant = 2 * first > trials and binomtest(first, trials, 0.5).pvalue <= alpha
        return int(classes.argmax()) if significant else ABSTAIN

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
            Votes per class, shape (K,), or (K + 1,) with ``undecided``; counted on the device and
            fetched once.
        """
        return self.tally(x, draws, seed, *key, start=start).votes

    def tally(self, x: Tensor, draws: int, seed: int, *key: int, start: int = 0) -> Tally:
        """Count votes as :meth:`votes` does, and the evaluations of members that they took if
        ``base`` is ``lazy``.
        """
        width = self._classes(x) + self.undecided
        counter, evaluations = VoteCounter([width], x.device), 0
        with self._ready(x):
            batches = self._batches(x, draws, seed, *key, start=start)
            if not getattr(self.base, "lazy", False):
                for batch in batches:
                    counter.add(evaluate(self.base, batch).to(x.device)[None], (len(batch), width))
                return Tally(counter.fetch()[0])
            for scores, evaluated in cast(Cascading, self.base).evaluate_cascade(batches):
                counter.add(scores[None], (len(scores), width))
                evaluations += evaluated
        return Tally(counter.fetch()[0], evaluations)

    def noise_of(self, x: Tensor) -> Noise:
        """Return the noise that is added to an image (C, H, W)."""
        return self.noise or (NOISE_OF_8_BIT if is_on_grid(x) else "gaussian")

    def visit(
        self, visitor: Callable[[Any, int], None], x: Tensor, draws: int, seed: int, *key: int
    ) -> None:
        """Call ``visitor(output of base, number of draws)`` for every batch of noisy copies; see
        :meth:`votes`.
        """
        with self._ready(x):
            for batch in self._batches(x, draws, seed, *key):
                visitor(self.base(batch), len(batch))

    def _check_run(self, run: Run) -> None:
        if run.draws:
            raise InputError(
                f"run must be a fresh one, but it has counted {run.draws} draws already; make one "
                "for each image"
            )
        if run.sigma != self.sigma:
            raise InputError(
                f"run must be one of this classifier's sigma, {self.sigma}, got one of sigma "
                f"{run.sigma}; make it with "
                "the noise that is drawn"
            )

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
        image = as_image(x)
        image = image.to(device_of(self.base, image))
        check_key(seed=seed, index=index)
        check_draws(image, alpha, **draws)
        if label is not None and label not in range(
            self._classes(image)
        ):  # a shortcut for every image
            raise InputError(
                f"label must be a class, a whole number from 0 to {self._classes(image) - 1}, got "
                f"{label!r}; leave it "
                "out where it is not known"
            )
        return image

    def _classes(self, x: Tensor) -> int:
        """Return K; of a classifier that was not told it, from its logits of ``x``."""
        if self.num_classes is None:
            with self._ready(x):
                shape = tuple(evaluate(self.base, x[None].clone()).shape)
            if len(shape) != 2 or shape[0] != 1 or shape[1] - self.undecided < 2:
                raise InputError(
                    f"base must return logits (1, K) of one image, K at least 2, got {shape}; look "
                    "at its last layer"
                )
            self.num_classes = shape[1] - self.undecided
        return self.num_classes

    @contextmanager
    def _ready(self, x: Tensor) -> Iterator[None]:
        """Set the modes that ``base`` runs in."""
        with torch.inference_mode(), evaluating(self.base), autocast(x.device, self.precision):
            yield

    def _batches(
        self, x: Tensor, draws: int, seed: int, *key: int, start: int = 0
    ) -> Iterator[Tensor]:
        """Yield ``draws`` noisy copies of ``x`` in batches, each of shape (<= batch, C, H, W)."""
        numbers, batch = range(start, start + draws), self.batch or default_batch(x)
        return noisy_batches(x, self.noise_of(x), self.sigma, numbers, batch, seed, *key)


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


def default_batch(x: Tensor) -> int:
    """Return how many noisy images to evaluate at once: enough to keep a GPU busy, or few enough
    for a CPU's caches.

    ``python -m benchmarks.forwards --batches 100,300`` shows which batch is the fastest on a CPU.
    """
    pixels, most = (2**23, 4000) if x.device.type == "cuda" else (2**19, 500)
    return min(most, max(1, pixels // x.numel() // BLOCK) * BLOCK)
