"""Gaps of certificates: how far above its certified radius each image has been attacked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Result
from rs.reporting.summaries import Numbers, paired_difference
from rs.storage import attack_rows, files
from rs.storage.certificate_rows import sidecar_of


def read_gaps(path: Path) -> pd.DataFrame:
    """Read attack rows, with the ratio of found to certified radius as ``gap``.

    It is infinite where no perturbation is confirmed.
    """
    rows = attack_rows.read_attacks(path)
    return rows.assign(gap=(rows["found"] / rows["radius"]).fillna(math.inf))


def summarize_attacks(path: Path) -> Numbers:
    """Return the gaps of a file of attack rows: median, 90 % quantile, and false certificates."""
    rows = read_gaps(path)
    about: Numbers = {
        "file": str(path),
        "images": len(rows),
        "confirmed": int(rows["found"].notna().sum()),
        "alpha": float(rows["alpha"].iloc[0]),
    }
    for name, share in (("median", 0.5), ("90 %", 0.9)):
        gap = float(np.quantile(rows["gap"], share, method="higher"))
        about[name] = gap if math.isfinite(gap) else None
    about["false_certificates"] = rows.loc[rows["gap"] < 1, "idx"].tolist()
    return about


def attacks_text(about: Numbers) -> str:
    """Return the numbers of :func:`summarize_attacks` as lines."""
    gaps = []
    for name, label in (("median", "median"), ("90 %", "90% quantile")):
        gap = about[name]
        gaps.append(f"{label} not reached" if gap is None else f"{label} {gap:.2f}")
    lines = [
        about["file"],
        f"  images              {about['images']:,} certified and attacked",
        f"  confirmed           {about['confirmed']:,} perturbations, alpha = {about['alpha']:g}",
        f"  found / certified   {', '.join(gaps)}",
    ]
    if about["false_certificates"]:
        lines.append(f"  FALSE CERTIFICATES  {about['false_certificates']}")
    return "\n".join(lines)


def compare_attacks(first: Path, second: Path) -> Numbers:
    """Return the paired difference of gaps, first minus second, over the images of both.

    Raises:
        InputError: If the images are different ones, or fewer than two images of both have a
            confirmed perturbation.
    """
    images = {files.json_values(sidecar_of(path)).get("images") for path in (first, second)}
    if len(images - {None}) > 1:
        raise InputError(
            f"{first} and {second} must be attacks on the same images, but their sidecars have "
            "different images; attack the same images"
        )
    pairs = read_gaps(first).merge(read_gaps(second), on="idx", suffixes=("_a", "_b"))
    pairs = pairs[np.isfinite(pairs["gap_a"]) & np.isfinite(pairs["gap_b"])]
    if len(pairs) < 2:
        raise InputError(
            f"{first} and {second} must have two confirmed perturbations of the same images, got "
            f"{len(pairs)}; attack the same images"
        )
    frames = []
    for gaps in (pairs["gap_a"], pairs["gap_b"]):
        frames.append(pd.DataFrame({"idx": pairs["idx"], "radius": gaps, "correct": 1}))
    return paired_difference(frames)


def gaps_text(numbers: Numbers) -> str:
    """Return the numbers of :func:`compare_attacks` as a line."""
    tie = ", tie" if numbers["tie"] else ""
    return (
        f"found / certified over {numbers['images']:,} images: A {numbers['a']:.3f}, "
        f"B {numbers['b']:.3f}, A - B {numbers['difference']:+.3f} ± "
        f"{numbers['error_images']:.3f}{tie}"
    )


def empirical(results: Sequence[tuple[Path, Result]], attacks: Sequence[Path]) -> list[Result]:
    """Return rows whose radii are the found ones: upper bounds on certified accuracy.

    The radius of an image that was not attacked, or not successfully, is not bounded: infinite.

    Args:
        results: Certificate rows and their paths.
        attacks: Files of attack rows; each states which certificates it attacks.
    Raises:
        InputError: If one attacks none of the row files.
    """
    by_hash = {hashlib.sha256(path.read_bytes()).hexdigest(): result for path, result in results}
    attacked = []
    for path in attacks:
        gaps = attack_rows.read_attacks(path).set_index("idx")["found"].dropna()
        certificates = files.json_values(sidecar_of(path)).get("certificates")
        if certificates not in by_hash:
            raise InputError(
                f"{path} must attack one of the row files; give the rows that it attacks too"
            )
        result = by_hash[certificates]
        rows = result.rows.copy()
        upper = rows["idx"].map(gaps).fillna(math.inf)
        rows["radius"] = np.where(rows["radius"] > 0, upper, 0.0)
        attacked.append(replace(result, name=f"{result.name}, attacked", rows=rows))
    return attacked
