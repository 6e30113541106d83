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
    *(f"r={radius:g}" for radius in RADII),
]


def main() -> None:
    """List the trained networks of the package, with ACR and certified accuracy at several radii.

    Every command that does not write into MODEL takes zoo:NAME. The numbers are computed from
    certificate rows that the package contains, with n samples per test image.

    Example:
        rs zoo
    """
    from rs.models.zoo import FOLDER

    print(zoo_table(FOLDER))
    say_next("rs predict photo.png --model zoo:NAME --convert --resize 32 --crop 32")


def zoo_table(zoo: Path) -> str:
    """Return a table of the networks in the folder ``zoo``, one line per network.

    Raises:
        InputError: If a card or a row file is missing or damaged.
    """
    from rs.models.checkpoint import read_card
    from rs.models.zoo import zoo_names
    from rs.reporting.summaries import summarize_rows
    from rs.reporting.summary_texts import aligned

    lines = [HEADER]
    for name in zoo_names(zoo):
        card = read_card(zoo / name)
        summary = summarize_rows(zoo / name / ROWS, RADII)
        cells = [name, f"{card.sigma:g}", f"{summary['images']:,}", f"{summary['n']:,}"]
        cells.append(f"{summary['acr']:.3f}")
        cells += [f"{accuracy:.1%}" for accuracy in summary["certified_accuracy"].values()]
        lines.append(cells)
    return "\n".join(aligned(lines))
