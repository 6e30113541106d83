"""What commands leave in folders."""

from pathlib import Path


def contents(folder):
    """Bytes of every file in a folder, from its path in there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def reproducible(folder):
    """:func:`contents` but for the files that hold wall times."""
    return {name: text for name, text in contents(folder).items() if "timing" not in name and "provenance" not in name}
