"""Write down what cells depend on beside files: code, versions, raw data, merged parameters. It always runs, first."""

import json
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
    from rs.runtime import arithmetic, code_fingerprint
    from rs.storage import files
    from rs.study.grid import check_names, stage_parameters

    values, where = read(params), f"datasets.{dataset}"
    check_study(values, dataset)
    check_names(values, dataset, code_fingerprint.methods(root))
    arithmetic.wanted(values, dataset)
    contents: dict[str, Any] = code_fingerprint.fingerprints(root) | {"versions": code_fingerprint.series()}
    contents["ensembles"] = {key: values.get(key) for key in ("combinations", "ensembles")}
    source = sources.settings(section(values, where), where)
    parameters = stage_parameters(values, dataset)
    contents |= {f"parameters/{dataset}/{name}": merged for name, merged in parameters.items()}
    if not all(is_known(out / f"{name}.json", content) for name, content in contents.items()):
        check_recipe(values, dataset)
    contents[f"raw/{dataset}"] = sources.fingerprint(source, prepared)
    files.check_replaceable(out, "versions.json", "fingerprints", [prepared, params], suffixes=[".json"])
    with files.replacing(out) as folder:
        for name, content in contents.items():
            files.write_json(folder / f"{name}.json", content)


def is_known(path: Path, content: Any) -> bool:
    """Return whether a fingerprint is there already."""
    from rs.storage import files

    return path.is_file() and files.read_json(path) == json.loads(json.dumps(content))


def check_recipe(values: dict[str, Any], dataset: str) -> None:
    """Check every value of the recipe as the stage that reads it does; that needs torch, seconds to import.

    Raises:
        InputError: If one is missing, unknown or out of range; names it.
    """
    from rs.certification.certify_model import certification_settings
    from rs.certification.certify_pool import PoolSettings
    from rs.ensemble.declare import check_rules
    from rs.ensemble.member_outputs import WeightSettings
    from rs.params import load
    from rs.study.grid import cells
    from rs.training.recipe import training_recipe

    check_rules(values)
    grid = cells(values, dataset)
    for method, sigma in dict.fromkeys((cell.method, cell.sigma) for cell in grid):
        training_recipe(values, dataset, method, sigma)
    certification_settings(values, dataset)
    if values.get("ensembles") or any(cell.further for cell in grid):  # else there is no pool
        load(values, f"recipes.{dataset}.pool", PoolSettings)
        load(values, f"recipes.{dataset}.weights", WeightSettings)


if __name__ == "__main__":
    run(main)
