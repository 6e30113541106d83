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

    stages = [path for path in sorted(root.glob("stages/*.py")) if path.stem not in HELPERS]
    methods = [path for path in sorted(root.glob("rs/methods/*.py")) if path.stem not in ("__init__", "base")]
    made = {path: out / f"{path.stem}.json" for path in stages}
    made |= {path: out / "methods" / f"{path.stem}.json" for path in methods}
    for path, target in made.items():
        is_ours = files.is_json_with(path.relative_to(root).as_posix())
        files.check_output(target, "a fingerprint of code", is_ours)
    for path, target in made.items():
        files.write_json(target, code.fingerprint(root, path.relative_to(root)))


if __name__ == "__main__":
    run(main)
