"""Tables of attacks: how far above certified radii they are, and whether they refute any."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.page_tables.cells import Lines
from benchmarks.page_tables.committed import Committed
from rs.reporting.attacks import read_gaps
from rs.reporting.tables.formatting import EMPTY
from rs.statistics.certificate import PER_IMAGE_SCOPE

MILLION = "1,000,000"
"""The most samples of certificates of images that were attacked."""

NETWORKS = {"cifar10": "package", "gpu": "fastnet", "study": "resnet8"}
"""Networks that were attacked, by the beginning of their files' names."""


class AttackedNetwork(NamedTuple):
    """A network that was attacked, and by how much certified radii are exceeded."""

    network: str
    method: str
    level: str
    ratios: dict[str, pd.Series]  # of found to certified radius, by number of samples


def attacked_networks(committed: Committed) -> list[AttackedNetwork]:
    """Return the attacked networks; the found radii of each are those of one attack."""
    folder = committed.root / "reports/rows/attacks"
    scale = committed.root / "benchmarks/results/paper-scale"
    networks = []
    for path in sorted(folder.glob("*-attacks.tsv")):
        rows = read_gaps(path)
        name = path.stem.removesuffix("-attacks")
        network, _, method_and_level = name.partition("-")
        method, _, level = method_and_level.rpartition("-")
        more_samples = {
            "10,000": folder / f"{name}-n10000.tsv",
            MILLION: folder / f"{name}-n1000000.tsv",
        }
        if network == "cifar10":
            more_samples["100,000"] = scale / f"{method_and_level}.tsv"
        ratios = {"1,000": rows.set_index("idx")["gap"]}
        for count, certificates in more_samples.items():
            if certificates.exists():
                ratios[count] = ratios_to(certificates, rows)
        networks.append(AttackedNetwork(NETWORKS[network], method, level, ratios))
    return networks


def ratios_to(certificates: Path, rows: pd.DataFrame) -> pd.Series:
    """Return the ratios of radii that attacks found to those of other certificates."""
    radii = pd.read_csv(certificates, sep="\t", index_col="idx")["radius"]
    found = rows.set_index("idx")["found"].fillna(np.inf)
    certified = radii.reindex(found.index)
    return (found / certified)[certified > 0]


def gaps(committed: Committed) -> Lines:
    """Return the ratios of found to certified radii of attacked networks, by number of samples."""
    titles = ["network", "method", "σ", "attacked", "n = 1,000", "its 90% quantile", "n = 10,000"]
    lines = [[*titles, "n = 100,000"]]
    for network, method, level, ratios in attacked_networks(committed):
        fewest_samples = ratios["1,000"]
        quantile = np.quantile(fewest_samples, 0.9, method="higher")
        line = [network, method, level, str(len(fewest_samples)), median_cell(fewest_samples)]
        line.append(f"{quantile:.2f}")
        for count in ("10,000", "100,000"):
            line.append(median_cell(ratios[count]) if count in ratios else EMPTY)
        lines.append(line)
    return lines


def median_cell(ratios: pd.Series) -> str:
    """Return a median and its exact 95% interval, of order statistics."""
    interval = stats.quantile_test(ratios, p=0.5).confidence_interval()
    return f"{ratios.median():.2f} ({interval.low:.2f} to {interval.high:.2f})"


def gaps_of_samples(committed: Committed) -> Lines:
    """Return median ratios on the few images that were certified with a million samples."""
    counts = ("1,000", "10,000", MILLION)
    lines = [["method", "σ", "images", *(f"n = {count}" for count in counts)]]
    for _, method, level, ratios in attacked_networks(committed):
        if MILLION not in ratios:
            continue
        images = ratios[MILLION].index
        medians = [f"{ratios[count].reindex(images).median():.2f}" for count in counts]
        lines.append([method, level, str(len(images)), *medians])
    return lines


def falsified(committed: Committed) -> Lines:
    """Return how many certificates on digits attacks inside and beyond the radius refuted."""
    counts = pd.read_csv(committed.root / "docs/falsification/digits.csv")
    counts = counts[~counts["boxed"]]
    by_image = counts["scope"] == PER_IMAGE_SCOPE
    groups = {
        "models and ensembles with a sound scope": counts[~by_image],
        "weights computed for each image (`scope: per-image`, †)": counts[by_image],
    }
    lines = [["certificates", "attacked", "false at 0.99 of the radius", "lost at 2.5 times it"]]
    for name, group in groups.items():
        at_distance = group.groupby("distance")[["attacked", "below_half"]].sum()
        attacked, false = at_distance.loc[0.99]
        lost = f"{at_distance.loc[2.5, 'below_half']:,}" if 2.5 in at_distance.index else EMPTY
        lines.append([name, f"{attacked:,}", str(false), lost])
    return lines
