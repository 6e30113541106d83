"""List the trained networks that the package contains."""

from pathlib import Path

from rs.runtime.progress import say_next

ROWS = "certified.tsv"
"""Certificate rows of a network, next to its weights."""

RADII = (0.25, 0.5, 1.0, 2.0)
"""Radii of the certified accuracies, in pixels of [0, 1]."""

HEADER = [
    "name",
    "sigma",
    "images",
    "n",
    "ACR",
    *(f"{radius:g}" for radius in RADII),
]


def main() -> None:
    """List the trained networks of the package, with ACR and certified accuracy at several radii.

    Every command that does not write into MODEL takes zoo:NAME. The numbers are computed from
    certificate rows that the package contains, with n draws per test image.

    Example:
        rs zoo
    """
    from rs.models.zoo import FOLDER

    print(zoo_table(FOLDER))
    say_next("rs predict photo.png --model zoo:NAME --convert --resize 32 --crop 32")


def zoo_table(zoo: Path) -> str:
    """Return a table of the networks in the folder ``zoo``, one line per network.

    Raises:
        InputError: If a card or a row file is damaged.
    """
    from rs.models.zoo import zoo_names
    from rs.reporting.summary_texts import aligned

    lines = [HEADER]
    for name in zoo_names(zoo):
        lines.append(_cells(zoo / name))
    return "\n".join(aligned(lines))


def _cells(folder: Path) -> list[str]:
    """Return the cells of a network; the numbers are empty if it does not have rows."""
    from rs.models.checkpoint import read_card
    from rs.reporting.summaries import summarize_rows

    card = read_card(folder)
    cells = [folder.name, f"{card.sigma:g}"]
    rows = folder / ROWS
    if not rows.exists():
        return cells + [""] * (len(HEADER) - len(cells))
    summary = summarize_rows(rows, RADII)
    cells += [f"{summary['images']:,}", f"{summary['n']:,}", f"{summary['acr']:.3f}"]
    return cells + [f"{accuracy:.1%}" for accuracy in summary["certified_accuracy"].values()]
