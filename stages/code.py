"""Fingerprint the code of every stage and method, so that only what a change of code reaches runs again."""

from pathlib import Path
from typing import Annotated

import typer

from stages.shell import run

HELPERS = ("__init__", "shell", "code")


def main(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for STAGE.json and methods/METHOD.json.")],
    root: Annotated[Path, typer.Option(exists=True, help="Folder that holds the packages rs and stages.")] = Path(),
) -> None:
    """Write what each stage and each training method is made of: its modules and their hashes."""
    from rs import code, files

    for path in sorted(root.glob("stages/*.py")):
        if path.stem not in HELPERS:
            files.write_json(out / f"{path.stem}.json", code.fingerprint(root, path.relative_to(root)))
    for key in code.methods(root):
        files.write_json(out / "methods" / f"{key}.json", code.method_fingerprint(root, key))


if __name__ == "__main__":
    run(main)
