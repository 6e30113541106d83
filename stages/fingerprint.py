"""Write down what cells depend on beside files: code, versions, raw data, merged parameters. It always runs, first."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rs.command_line.shell import ParamsFile, run


def main(
    dataset: Annotated[str, typer.Option(help="Data set: a key of datasets and recipes in the parameters.")],
    prepared: Annotated[
        Path, typer.Option(file_okay=False, help="Its prepared folder, which knows raw data that are not here.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            file_okay=False,
            help="Folder to make: STAGE, methods/METHOD, versions, ensembles, raw/DATASET, parameters/DATASET/..., "
            "as *.json.",
        ),
    ],
    params: ParamsFile = Path("params.yaml"),
    root: Annotated[Path, typer.Option(exists=True, help="Folder that holds the packages rs and stages.")] = Path(),
) -> None:
    """Fingerprint the code of each stage and method, versions and raw data, and merge the parameters of each cell."""
    from rs.data import sources
    from rs.params import read, section
    from rs.reporting.settings import check_study
    from rs.runtime import code_fingerprint
    from rs.storage import files
    from rs.study.grid import stage_parameters

    values, where = read(params), f"datasets.{dataset}"
    check_study(values, dataset)
    ensembles, checked = {key: values.get(key) for key in ("combinations", "ensembles")}, out / "ensembles.json"
    if values.get("ensembles") and not (checked.is_file() and files.read_json(checked) == ensembles):
        from rs.ensemble.declare import check_rules  # rules need torch, seconds to import, so only after a change

        check_rules(values)
    contents: dict[str, Any] = code_fingerprint.fingerprints(root) | {"versions": code_fingerprint.series()}
    contents["ensembles"] = ensembles
    contents[f"raw/{dataset}"] = sources.fingerprint(sources.settings(section(values, where), where), prepared)
    parameters = stage_parameters(values, dataset)
    contents |= {f"parameters/{dataset}/{name}": merged for name, merged in parameters.items()}
    files.check_replaceable(out, "versions.json", "fingerprints")
    with files.replacing(out) as folder:
        for name, content in contents.items():
            files.write_json(folder / f"{name}.json", content)


if __name__ == "__main__":
    run(main)
