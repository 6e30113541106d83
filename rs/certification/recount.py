"""Casting the votes of a bundle's rows again, with the models at hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rs.certification.load import load
from rs.certification.quantize import openvino_identity
from rs.data.images import load_images
from rs.data.prepared import Images
from rs.errors import InputError
from rs.models.fingerprint import model_fingerprint
from rs.smoothing.settings import Draws, SmoothingOptions
from rs.statistics.certificate import format_counts
from rs.study.layout import GridCell


def recount(
    study: dict[str, Any], content: dict[str, bytes], models: Path, folder: Path, index: int, device: torch.device
) -> Iterator[str]:
    """Draw the noise of an image again, and count the votes of every model of a bundle that is at hand.

    Args:
        study: What the bundle says of its classifiers (``rs.reporting.bundle.study_of``).
        content: Its files.
        models: Folder of models, ``DATASET/SIGMA/METHOD/SEED`` in it.
        folder: The prepared data set.
        index: Number of the image.
        device: Where the models run.
    Returns:
        An iterator, which counts: a line for each model, that its votes are the same.
    Raises:
        InputError: At once, if no model is at hand, or the images or a row is not; later, if a model or the images are
            others than those of the rows, or a vote is.
    """
    rows_of_models = _models_at_hand(study, models)
    for rows in rows_of_models.values():
        _row(content[f"{rows}.tsv"], index)
    images = load_images(folder, "test")
    path = f"data/{study['dataset']}/meta.json"
    if path in content and (size := json.loads(content[path])["sizes"]["test"]) != len(images):
        raise InputError(f"{folder} must have the {size:,} test images that {path} says, but has {len(images):,}")
    return (
        _same_votes(json.loads(content[f"{rows}.json"]), content[f"{rows}.tsv"], model, images, folder, index, device)
        for model, rows in rows_of_models.items()
    )


def _models_at_hand(study: dict[str, Any], models: Path) -> dict[Path, str]:
    """Return the models of a bundle that are in a folder, and where the bundle has the rows of each."""
    if not models.is_dir():
        raise InputError(f"--models must be a folder, but there is no {models}; correct its name")
    rows_of_models, dataset = {}, study["dataset"]
    for sigma in study["sigmas"]:
        for entry in study["classifiers"]:
            seed, is_member_seed = entry["members"][0][1], entry["folder"] != ""
            cell = GridCell(dataset, entry["name"], sigma, seed, is_member_seed=is_member_seed)
            model = cell.model(models / cell.dataset)
            if entry["key"] is None and model.is_dir():
                rows_of_models[model] = cell.rows(Path("results", cell.dataset)).with_suffix("").as_posix()
    if not rows_of_models:
        raise InputError(f"{models} must hold models of the bundle, {dataset}/SIGMA/METHOD/SEED; has none of them")
    return rows_of_models


def _same_votes(
    side: dict[str, Any], rows: bytes, model: Path, images: Images, calibration: Path, index: int, device: torch.device
) -> str:
    if side["device"] != device.type:
        raise InputError(
            f"{model}: votes must be counted on {side['device']}, where the rows were made, got {device.type}, which "
            f"draws other noise; give --device {side['device']}"
        )
    row = _row(rows, index)
    base = load(str(model), images.meta)
    hashes = {"images": (side["images"], images.fingerprint)}
    hashes["weights"] = (side["classifier"], model_fingerprint(base.module))
    for name, (expected, actual) in hashes.items():
        if expected != actual:
            raise InputError(f"{model} must have the {name} of the rows, {expected[:12]}..., got {actual[:12]}...")
    options = SmoothingOptions(
        sigma=side["sigma"],
        device=device,
        noise=side.get("noise", "gaussian"),
        precision="float32" if side["engine"] == "quantized" else side["precision"],  # that of what runs beside it
        engine=side["engine"],
        calibration=calibration,
    )
    smoothed = base.smooth(**vars(options))
    if (network := openvino_identity([smoothed.base]).get("quantized")) != side.get("quantized"):
        raise InputError(
            f"{model}: the quantised network must be that of the rows, {side.get('quantized')}, got {network}; take "
            "the quantized.* files that the rows were made with"
        )
    label = int(images.labels[index])
    if int(row["label"]) != label:
        raise InputError(f"{model}: the label of image {index} must be {row['label']}, as the rows say, but is {label}")
    draws = Draws(side["n0"], side["n"], side["alpha"], side["seed"])
    shortcut = label if row["mode"] == "shortcut" else None
    certificate = smoothed.certify(images.pixels(index).to(device), **vars(draws), index=index, label=shortcut)
    for name in ("counts0", "counts"):
        if (counts := format_counts(getattr(certificate, name).tolist())) != row[name]:
            raise InputError(
                f"{model}: {name} of image {index} must be {row[name]}, as the rows say, but are {counts} here, "
                f"in {options.engine} {options.precision} on {device.type}; another kind of machine can change a few "
                "votes where the arithmetic is native"
            )
    return f"{model}: the {certificate.n0 + certificate.n:,} votes on image {index} are those of the rows"


def _row(rows: bytes, index: int) -> dict[str, str]:
    names, *lines = (line.split("\t") for line in rows.decode().splitlines())
    for line in lines:
        if line[0] == str(index):
            return dict(zip(names, line, strict=True))
    raise InputError(
        f"--image must be one of the {len(lines)} images of the rows, {lines[0][0]} to {lines[-1][0]}; got {index}"
    )
