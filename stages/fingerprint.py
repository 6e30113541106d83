"""Fingerprint what no parameter says: the code of stages and methods, versions, raw data. It always runs, a second."""

from pathlib import Path
from typing import Annotated

import typer

from stages.shell import ParamsFile, run

HELPERS = ("__init__", "shell", "fingerprint")


def main(
    dataset: Annotated[str, typer.Option(help="Data set: a key of datasets in the parameters.")],
    prepared: Annotated[
        Path, typer.Option(file_okay=False, help="Its prepared folder, which knows raw data that are not here.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            file_okay=False, help="Folder for STAGE.json, methods/METHOD.json, versions.json and raw/DATASET.json."
        ),
    ],
    params: ParamsFile = Path("params.yaml"),
    root: Annotated[Path, typer.Option(exists=True, help="Folder that holds the packages rs and stages.")] = Path(),
) -> None:
    """Write the hashes of the modules of each stage and method, the series of Python, NumPy and torch, and raw data."""
    from rs.data import sources
    from rs.params import read, section
    from rs.runtime import code_fingerprint
    from rs.storage import files

    values = section(read(params), "datasets", dataset)
    stages = [path.relative_to(root) for path in sorted(root.glob("stages/*.py")) if path.stem not in HELPERS]
    made = {out / f"{path.stem}.json": code_fingerprint.fingerprint(root, path) for path in stages}
    made |= {
        out / "methods" / f"{key}.json": code_fingerprint.method_fingerprint(root, key)
        for key in code_fingerprint.methods(root)
    }
    for path in made:
        own = "class" if path.parent.name == "methods" else f"stages/{path.stem}.py"
        files.check_output(path, "a fingerprint of code", files.is_json_with(own))
    raw = sources.fingerprint(sources.settings(values, f"datasets.{dataset}"), prepared)
    made |= {out / "versions.json": code_fingerprint.series(), out / "raw" / f"{dataset}.json": raw}
    for path, found in made.items():
        files.write_json(path, found)


if __name__ == "__main__":
    run(main)
