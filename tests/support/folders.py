"""What commands leave in folders."""

from pathlib import Path


def contents(folder):
    """Bytes of every file in a folder, from its path in there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }
