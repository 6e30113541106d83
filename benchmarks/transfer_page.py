"""The page on certificates by transfer, from votes of ``benchmarks.transfer``: a table and a picture.

``python -m benchmarks.transfer_page``: reads ``reports/rows/transfer``, and writes ``benchmarks/results/transfer.md``
and ``transfer.svg``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.common import ALPHA, N0
from benchmarks.transfer import ANEW, COMPARED
from rs.reporting.report import svg
from rs.statistics.radius import lower_bound, radius, transferred_bound
from rs.storage import files

ROWS, PAGE = Path("reports/rows/transfer"), Path("benchmarks/results/transfer.md")

TEXT = """\
# What certificates by transfer are worth

`resnet8` of CIFAR-10, trained without noise and then for two epochs by AdvMacer (`benchmarks.finetune`). The float32
network has certificates of {n:,} draws for {images} test images. Its int8 or bfloat16 form is certified by these and by
draws of both networks (transfer), by its own draws (anew), or by a rule: anew where all {n0} draws that selected the
class of the float32 network agree, else by transfer. ACR ± its standard error over images; to anew: the paired
difference to as many draws of the second network alone; alpha = {alpha:g}. Seconds are of one thread of a busy machine,
medians over images; those of a transfer are of both networks.

{table}

![ACR by seconds of a certificate](transfer.svg)

The votes are in `reports/rows/transfer`; `python -m benchmarks.transfer` makes them, `python -m
benchmarks.transfer_page` this page.
"""
HEADER = "| sigma | form | certificate | draws | ACR | to anew | seconds |\n|---:|---|---|---:|---:|---:|---:|"


def ways(votes: pd.DataFrame) -> pd.DataFrame:
    """Return radius times correct of each image, by way and draws, in ``radii``; and the seconds of a certificate."""
    n = int(votes["n"].iloc[0])
    first_seconds, seconds = (float(votes[name].median()) / n for name in ("seconds", "seconds_anew"))
    first = _radii(votes, lower_bound(votes["votes"], n, ALPHA), "predict")
    rows = [("float32 network", n, first, first_seconds * n)]
    anew = {count: _radii(votes, lower_bound(votes[f"votes_{count}"], count, ALPHA), "anew") for count in ANEW}
    clear = (votes["selection"] == N0).to_numpy()  # known before any draw that bounds a probability
    for count in COMPARED:
        bound = transferred_bound(votes["votes"], n, votes[f"losses_{count}"], count, ALPHA)
        moved = _radii(votes, bound, "predict")
        rows.append(("transfer", count, moved, count * (first_seconds + seconds)))
        of_rule = count * (seconds + first_seconds * float(1 - clear.mean()))
        rows.append(("rule", count, np.where(clear, anew[count], moved), of_rule))
    rows += [("anew", count, anew[count], count * seconds) for count in ANEW]
    return pd.DataFrame(rows, columns=["way", "draws", "radii", "seconds"])


def _radii(votes: pd.DataFrame, bound: NDArray[np.float64], predict: str) -> NDArray[np.float64]:
    """Return radius times correct of each image."""
    is_right = (bound >= 0.5) & (votes[predict] == votes["label"])
    return np.where(is_right, radius(bound, votes["sigma"]), 0.0)


def with_error(values: NDArray[np.float64], sign: str = "") -> str:
    """Return a mean and its standard error.

    >>> with_error(np.array([0.5, 0.7]), "+")
    '+0.6000 ± 0.1000'
    """
    return f"{values.mean():{sign}.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}"


def table_rows(votes: pd.DataFrame) -> list[str]:
    """Return the rows of the table for one network and form as Markdown."""
    found = ways(votes)
    anew = found[found["way"] == "anew"].set_index("draws")["radii"]
    about, lines = f"{votes['sigma'].iloc[0]:g} | {votes['form'].iloc[0]}", []
    for row in found.itertuples():
        paired = with_error(row.radii - anew[row.draws], "+") if row.way in ("transfer", "rule") else ""
        cells = f"{row.way} | {row.draws:,} | {with_error(row.radii)} | {paired} | {row.seconds:.2f}"
        lines.append(f"| {about} | {cells} |")
    return lines


def draw(tables: list[pd.DataFrame]) -> Figure:
    """Draw the ACR against the seconds of a certificate: a panel for each network and form."""
    figure = Figure(figsize=(3.6 * len(tables), 3.6), layout="constrained")
    for axis, votes in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True):
        found = ways(votes)
        for (way, marker), colour in zip({"transfer": "o", "rule": "s", "anew": "^"}.items(), COLOURS, strict=True):
            line = found[found["way"] == way]
            axis.plot(line["seconds"], line["radii"].map(np.mean), color=colour, marker=marker, label=way)
        axis.axhline(found["radii"].iloc[0].mean(), color="#888888", linestyle=":", label="float32 network")
        axis.set_xscale("log")
        axis.set_title(f"{votes['form'].iloc[0]}, σ = {votes['sigma'].iloc[0]:g}")
        axis.set_xlabel("seconds of a certificate")
        axis.set_ylabel("ACR")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


COLOURS = ("#0072b2", "#e69f00", "#000000")


def read_tables(folder: Path) -> list[pd.DataFrame]:
    """Return the votes of each network and form."""
    return [pd.read_csv(path) for path in sorted(folder.glob("*.csv"), reverse=True)]


def page(folder: Path) -> str:
    """Return the page from the files in ``folder``."""
    tables = read_tables(folder)
    lines = [line for votes in tables for line in table_rows(votes)]
    n, images = int(tables[0]["n"].iloc[0]), len(tables[0])
    return TEXT.format(n=n, images=images, n0=N0, alpha=ALPHA, table="\n".join([HEADER, *lines]))


def main() -> None:
    """Write the page and its picture."""
    files.write_text(PAGE, page(ROWS))
    files.write_bytes(PAGE.with_suffix(".svg"), svg(draw(read_tables(ROWS))))


if __name__ == "__main__":
    main()
