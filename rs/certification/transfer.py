"""Certify a changed classifier by the votes of the one that it was made from (Ugare et al. 2024)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from rs.certification.inference import members_of
from rs.certification.load import Classifier
from rs.certification.quantize import quantized_identity
from rs.data.prepared import Images
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.backend import device_of
from rs.models.fingerprint import model_fingerprint
from rs.runtime import arithmetic, code_fingerprint
from rs.runtime.device import limit_threads
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import watched
from rs.smoothing.settings import SmoothingOptions
from rs.statistics.certificate import ABSTAIN, parse_counts
from rs.statistics.metrics import budget, mode_of
from rs.statistics.radius import radius, transferred_bound
from rs.storage import certificate_rows, files
from rs.storage.certificate_rows import EVALUATIONS, LOSSES, sidecar_of
from rs.storage.row_writer import write_rows

MODULE = "rs/certification/transfer.py"
"""Code that rows depend on."""


def transfer_rows(
    path: Path,
    source: Classifier,
    target: Classifier,
    images: Images,
    draws: int,
    options: SmoothingOptions,
    *,
    out: Path,
) -> None:
    """Certify ``target`` by the rows of ``source`` and by a few draws that both classify.

    The draws are the first of those that bounded the probability of the class. Where all votes of a row agree,
    ``target`` alone classifies them. Where ``source`` abstained, nothing is drawn, and ``target`` abstains.
    :func:`rs.statistics.radius.transferred_bound` has the bound and its source.

    Args:
        path: Rows of ``source`` with their sidecar, each of all n draws.
        source: The classifier of the rows; it runs as their sidecar says.
        target: The classifier to certify, of the same classes.
        images: The images of the rows.
        draws: Number of draws that compare the two, at most n.
        options: How ``target`` runs; sigma and noise are those of the rows.
        out: Row file to write, ``*.tsv``.
    Raises:
        InputError: If the rows are of another classifier, of other images or of another device, or of fewer draws; or
            ``source`` votes otherwise than its rows say.
    """
    limit_threads(images.meta.shape)
    if source.scope == "set":
        raise InputError(f"{source.name} must vote for a class at every draw, but has scope set; certify without rows")
    rows, sidecar = certificate_rows.read_rows(path), files.json_values(sidecar_of(path))
    rows = rows.drop(columns=EVALUATIONS, errors="ignore")  # of a cascade
    _check_draws(path, rows, draws)
    device = options.device or device_of(target.module)
    options = replace(options, device=device, sigma=budget(rows, "sigma"), noise=sidecar.get("noise"))
    stated = {name: sidecar[name] for name in ("engine", "precision") if name in sidecar}
    if stated.get("engine") == "quantized":
        stated["precision"] = "float32"  # of what is not in int8
    smoothed = source.smooth(**vars(options) | stated)
    _check_sidecar(path, sidecar, source, smoothed, images, device.type)
    other = target.smooth(**vars(options))
    replaced = {"members", "weights", *quantized_identity([smoothed.base])}  # of the source alone
    identity = {name: value for name, value in sidecar.items() if name not in replaced}
    identity |= {
        "model": target.name,
        "classifier": model_fingerprint(target.module),
        "sources": target.sources,
        "scope": target.scope,
        "precision": options.precision,
        "engine": other.engine,
        "code": code_fingerprint.code_hash(MODULE),
        "versions": checkpoint.library_versions(),
        "transfer": {"classifier": sidecar["classifier"], "rows": files.sha256(path), "draws": draws},
        **quantized_identity([other.base]),
    }
    indices, by_image = rows["idx"].to_numpy(), rows.set_index("idx", drop=False)
    with write_rows({out: identity}, certificate_rows.seconds_of(out), indices, {out: (LOSSES,)}) as writer:
        of_source = watched(writer.remaining, members_of(smoothed.base), smoothed.precision)
        for index in watched(of_source, members_of(other.base), other.precision):
            row = by_image.loc[index]
            losses = _losses(row, smoothed, other, images.pixels(index).to(device), draws, sidecar.get("seed", 0))
            writer.write(index, {out: _transferred(row, losses, draws, target.scope)})


def _losses(
    row: pd.Series[Any], source: SmoothedClassifier, target: SmoothedClassifier, x: Tensor, draws: int, seed: int
) -> int:
    """Count the draws on which ``source`` votes for its row's class and ``target`` does not; all without a class."""
    selected, votes = row["predict"], _votes(row)
    if selected == ABSTAIN or row["mode"] == "shortcut":
        return draws
    key = (Stream.ESTIMATE, row["idx"])
    lost = target.votes_by_draw(x, draws, seed, *key) != selected
    if votes < row["n"]:
        won = source.votes_by_draw(x, draws, seed, *key) == selected
        if won.sum() > votes or draws - won.sum() > row["n"] - votes:
            raise InputError(
                f"image {row['idx']}: the first classifier must vote as its rows say, {votes} of {row['n']} for class "
                f"{selected}, but {won.sum()} of {draws} are; give the one that was certified, on the same machine"
            )
        lost &= won
    return int(lost.sum())


def _votes(row: pd.Series[Any]) -> int:
    """Return the votes for the class of a row; none if it abstains, where all draws count as losses too."""
    return parse_counts(row["counts"]).get(row["predict"], 0)


def _transferred(row: pd.Series[Any], losses: int, draws: int, scope: str) -> dict[str, Any]:
    """Return the row of the other classifier."""
    if row["mode"] == "shortcut":
        return {**row, "scope": scope, LOSSES: losses}
    p_lower = float(transferred_bound(_votes(row), row["n"], losses, draws, row["alpha"]))
    predict = row["predict"] if p_lower >= 0.5 else ABSTAIN
    return {
        **row,
        "predict": predict,
        "radius": float(radius(p_lower, row["sigma"])),
        "correct": int(predict == row["label"]),
        "p_lower": p_lower,
        "mode": f"transfer:{draws}",
        "scope": scope,
        LOSSES: losses,
    }


def _check_draws(path: Path, rows: pd.DataFrame, draws: int) -> None:
    if mode_of(rows) != "certify":
        raise InputError(f"{path} must be rows of all n draws, but their mode is {mode_of(rows)}; certify without it")
    drawn = rows.loc[rows["n"] > 0, "n"]
    if not 1 <= draws <= drawn.min():
        raise InputError(f"--n must be 1 to {drawn.min():,}, the draws of {path}, got {draws:,}")


def _check_sidecar(
    path: Path, sidecar: dict[str, Any], source: Classifier, smoothed: SmoothedClassifier, images: Images, device: str
) -> None:
    """Refuse rows of another classifier, or of one that ran otherwise than ``smoothed`` does here."""
    here = {"classifier": model_fingerprint(source.module), "images": images.fingerprint, "device": device}
    here |= {"arithmetic": arithmetic.current(), "engine": smoothed.engine, **quantized_identity([smoothed.base])}
    for name in ("classifier", "images", "device", "arithmetic", "engine", "quantized"):
        if here.get(name) != sidecar.get(name):
            raise InputError(
                f"{path} must be rows of {source.name} on these images and this device, but the {name} of its sidecar "
                f"is {sidecar.get(name)}, not {here.get(name)}; give what the rows are of"
            )
