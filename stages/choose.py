"""Choose what to study: write a recipe's name, and its grid, into the parameters."""

import io
from pathlib import Path
from typing import Annotated, Any

import typer

from rs.command_line.shell import ParamsFile, run
from rs.errors import InputError

GRID = ("sigmas", "methods", "seeds", "members", "member_seeds", "ensembles")


def main(
    dataset: Annotated[
        str, typer.Argument(help="Name of a recipe; grids.DATASET has its keys of the grid.")
    ],
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Write DATASET into `dataset` of the parameters, and grids.DATASET over the keys of the grid."""
    from rs.params import merge, read_params, section, validate
    from rs.storage import files

    values = read_params(params)
    grids = merge(values, "grids", optional=True)[0]
    for name in (dataset, *grids):
        section(values, f"recipes.{name}")
    grid = validate(dict[str, Any], grids.get(dataset, {}), f"grids.{dataset}")
    if unknown := [key for key in grid if key not in GRID]:
        must = f"grids.{dataset} must have keys among {', '.join(GRID)}"
        raise InputError(f"params.yaml: {must}; got {', '.join(unknown)}")
    text = params.read_bytes().decode()
    changed = with_values(text.replace("\r\n", "\n"), {"dataset": dataset, **grid})
    files.write_text(params.resolve(), changed.replace("\n", "\r\n") if "\r\n" in text else changed)


def with_values(text: str, changes: dict[str, Any]) -> str:
    """Return YAML with other values at its top level; all else stays, comments too, and values that
    are equal already.

    >>> print(with_values("dataset: digits  # which\\nlimit: null\\nsigmas:\\n  - 0.5\\n", {"sigmas": [1.0]}), end="")
    dataset: digits  # which
    limit: null
    sigmas:
      - 1.0
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 2**16
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(
        type(None),
        lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null"),
    )
    values = yaml.load(text)
    for key, value in changes.items():
        if values.get(key) != value:
            values[key] = value
    out = io.StringIO()
    yaml.dump(values, out)
    return out.getvalue()


if __name__ == "__main__":
    run(main)
