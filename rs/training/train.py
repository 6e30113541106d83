"""``rs.train``: train a user's network with noise, on arrays or a data set of torch."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from rs import params
from rs.certification.load import Classifier, load
from rs.data.images import PackedImages
from rs.data.meta import Meta
from rs.data.prepared import Images, images_fingerprint
from rs.errors import InputError
from rs.methods import DEFAULT_METHOD, method_class
from rs.methods.base import within
from rs.models import architectures
from rs.params import PIXELS, Bounds
from rs.runtime.device import resolve_device
from rs.runtime.streams import seeded
from rs.smoothing.inputs import check_unmasked
from rs.smoothing.user_networks import register_network
from rs.training.recipe import RunOptions, override, training_recipe
from rs.training.run import train_model
from rs.training.torch_dataset import RereadImages, as_values, is_random, read_all

RECIPE = "finetune"
"""Recipe of the package for networks of users."""

Arrays = tuple[NDArray[Any], NDArray[np.int64]]
"""Images (N, C, H, W), or other inputs (N, ...), and labels (N,)."""

Pixels = Tensor | NDArray[Any]
"""Images (N, C, H, W), uint8 or in [0, 1], or other inputs (N, ...) within their bounds."""


def train(
    network: nn.Module | Callable[[], nn.Module],
    images: Pixels | Dataset[Any],
    labels: Sequence[int] | Tensor | NDArray[Any] | None = None,
    *,
    sigma: float,
    bounds: Bounds = PIXELS,
    method: str = DEFAULT_METHOD,
    validation: tuple[Pixels, Any] | float | None = None,
    classes: Sequence[str] | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    seed: int = 0,
    device: str = "auto",
    from_scratch: bool = False,
    trainable: str = "all",
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    out: str | Path | None = None,
    restart: bool = False,
    **hyperparameters: Any,
) -> Classifier:
    """Train a network with noise, starting from its weights, and return a classifier.

    The classifier is of the type that :func:`rs.load` returns. The training follows the recipe
    ``finetune`` of params.yaml, as ``rs train --network`` does.

    Args:
        network: Images (N, C, H, W) in [0, 1], or other inputs (N, ...) -> logits (N, K), or (N, 1)
            for two classes, with any normalization inside; or a function that returns one. It stays
            unchanged.
        images: Shape (N, C, H, W), or (N, ...); or a torch data set with items (image, label). The
            first 64 items are read twice. If they differ, as with random crops, each epoch reads
            all items again; otherwise all are read once.
        labels: Shape (N,), numbers from 0 to K - 1; ``None`` for a data set.
        sigma: Noise standard deviation, in the unit of the inputs, as are the hyperparameters.
        bounds: The least and the largest value of inputs, or ``None`` for unbounded ones. The model
            records them.
        method: Key of ``rs.methods.METHODS``.
        validation: Images and labels of a quick ACR after each epoch, or the share of each class to
            hold out for it; ``None`` for no ACR, which can take longer than an epoch.
        classes: Names of the K classes; ``None`` for the numbers of the network's logits.
        epochs: Passes over the images; the last model is kept; ``None`` for the recipe's.
        batch: Noisy images per step (``macer``: clean images); determines memory use; ``None`` for
            the recipe's.
        seed: Seed of every random number.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        from_scratch: Whether to start from random weights.
        trainable: ``all``, ``head`` (the last linear layer) or a regular expression of parameters'
            names.
        on_epoch: Called with the row of the history after each epoch; values that were not
            measured, such as ``acr`` without ``validation``, are ``None``.
        out: Folder for the model, with its log in ``out/log``; ``None`` keeps none. The model of an
            earlier call with the same arguments is loaded.
        restart: Whether another model of the same method, data set, noise and seed in ``out`` is
            replaced.
        hyperparameters: Values of the method that replace the recipe's; ``training`` replaces
            values of the section of that name.
    Raises:
        InputError: If images, labels, network or settings do not fit, or the loss becomes NaN.
    """
    if not callable(network):
        raise InputError(
            "network must be an nn.Module or a function that builds one, got "
            f"{type(network).__name__}"
        )
    bounds = params.check_bounds(bounds)
    sigma = params.check_sigma(sigma, bounds=bounds)
    section = hyperparameters.pop("training", {})
    training = dict(params.validate(dict[str, Any], section, f"{method}.training"))
    if validation is not None:
        training.setdefault("eval_every", 1)
    if epochs is not None:
        training["epochs"] = epochs
    if batch is not None:
        training["batch"] = batch
    network_name = register_network(network)
    _check_hyperparameters(method, hyperparameters)
    options = RunOptions(
        sigma=sigma,
        seed=seed,
        device=resolve_device(device),
        from_scratch=from_scratch,
        trainable=trainable,
        on_epoch=on_epoch,
        bounds=bounds,
    )
    arrays = _arrays(images, labels, seed, bounds)
    dataset = None
    if labels is None and is_random(images, arrays[0], seed, bounds):
        dataset = images
    values = override(
        params.packaged(),
        RECIPE,
        method,
        training=training,
        hyperparameters=hyperparameters,
        network=network_name,
    )
    if classes is None:
        classes = _numbers(arrays, network_name)
    to_train, to_validate = _splits(arrays, dataset, validation, classes, options)
    recipe = training_recipe(values, RECIPE, method, sigma, nearest=True)
    recipe = replace(recipe, method=within(recipe.method, bounds))
    threads = torch.get_num_threads()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) if out is None else Path(out)
            train_model(
                recipe,
                to_train,
                to_validate,
                options,
                out=folder,
                log=folder / "log",
                restart=restart,
            )
            return load(folder)
    finally:
        torch.set_num_threads(threads)


def _check_hyperparameters(method: str, hyperparameters: dict[str, Any]) -> None:
    allowed = inspect.signature(method_class(method)).parameters
    for name in hyperparameters:
        if name not in allowed:
            raise InputError(
                f"{method} has no hyperparameter {name}; it has {', '.join(allowed) or 'none'}"
            )


def _splits(
    arrays: Arrays,
    dataset: Any,
    validation: tuple[Pixels, Any] | float | None,
    classes: Sequence[str],
    options: RunOptions,
) -> tuple[Images, Images]:
    """Return the images to train on, read again from ``dataset`` unless None, and to validate."""
    train = _packed(arrays, tuple(classes))
    if dataset is not None:
        train = RereadImages(
            train.meta,
            train.images,
            train.labels,
            dataset=dataset,
            numbers=np.arange(len(train)),
            bounds=options.bounds,
        )
    if validation is None:
        return train, train
    what = type(validation).__name__
    if isinstance(validation, int | float):
        if 0 < validation < 1:
            return train.split(validation)
        what = str(validation)
    if not isinstance(validation, tuple) or len(validation) != 2:
        raise InputError(
            f"validation must be (images, labels), or a share between 0 and 1, got {what}"
        )
    evaluation = _packed(_arrays(*validation, options.seed, options.bounds), tuple(classes))
    if evaluation.meta.shape != train.meta.shape:
        raise InputError(
            f"validation images must have the shape of the others, {train.meta.shape}, got "
            f"{evaluation.meta.shape}"
        )
    return train, evaluation


def _numbers(arrays: Arrays, network: str) -> list[str]:
    """Return the numbers of the classes: of a network that has more than the labels, its own."""
    images, labels = arrays
    shape = images.shape[1:]
    with torch.no_grad(), seeded(0):
        model = architectures.ARCHITECTURES[network](shape, 0)
        logits = model.cpu().eval()(torch.zeros(1, *shape))
    count = int(labels.max()) + 1
    if logits.ndim == 2:
        count = max(count, logits.shape[1])
    return [str(number) for number in range(count)]


def _arrays(images: Any, labels: Any, seed: int, bounds: Bounds) -> Arrays:
    """Return images as uint8 (N, C, H, W), or other inputs as float32, and labels as int64 (N,).

    Raises:
        InputError: If they are of another kind or shape.
    """
    if labels is None:
        images, labels = read_all(images, seed, bounds)
    elif isinstance(images, Dataset):
        raise InputError("a data set has its own labels, but others were given; leave them out")
    check_unmasked(images, "images")
    x = _tensor(images, "images")
    y = _tensor(labels, "labels")
    are_shapes = x.ndim > 1 and y.shape == x.shape[:1]
    if not are_shapes or y.is_floating_point() or x.numel() == 0 or int(y.min()) < 0:
        message = (
            "images must have the shape (N, C, H, W), or other inputs (N, ...), and labels N whole "
            f"numbers from 0, got images of shape {tuple(x.shape)} and labels of shape "
            f"{tuple(y.shape)} in {y.dtype}; give the number of each image's class"
        )
        raise InputError(message.replace("torch.", ""))
    pixels = as_values(x.detach(), bounds).cpu().numpy()
    return np.ascontiguousarray(pixels), y.cpu().numpy().astype(np.int64)


def _tensor(values: Any, name: str) -> Tensor:
    """Return as a tensor an array of NumPy, of torch, or of a library that converts to NumPy.

    Raises:
        InputError: If it does not hold numbers.
    """
    try:
        if not isinstance(values, Tensor) and hasattr(values, "__array__"):
            values = np.require(values, requirements="W")  # torch warns of read-only arrays
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} must be an array of numbers, but: {error}; convert them, or give a data set "
            "with items (image, label)"
        ) from error


def _packed(arrays: Arrays, classes: tuple[str, ...]) -> PackedImages:
    images, labels = arrays
    if labels.max() >= len(classes):
        raise InputError(
            f"labels must lie in 0..{len(classes) - 1}, one for each class, got {labels.max()}; "
            "correct them or classes"
        )
    channels = images.shape[1] if images.ndim == 4 else 0
    meta = Meta(
        name="images",
        classes=classes,
        shape=images.shape[1:],
        mean=(0.0,) * channels,  # the network has its own normalization
        std=(1.0,) * channels,
        source="arrays",
        sizes={"train": len(labels)},
        sha256={"train": images_fingerprint(images, labels)},
    )
    return PackedImages(meta, images, labels)
