"""Select what to study: write the name of a recipe, and its grid, into the parameters."""

import io
from pathlib import Path
from typing import Annotated, Any

import typer

from rs.command_line.shell import ParamsFile, run
from rs.errors import InputError

GRID = ("sigmas", "methods", "seeds", "members", "member_seeds", "ensembles")


def main(
    dataset: Annotated[
        str, typer.Argument(help="Name of a recipe; grids.DATASET may have its grid.")
    ],
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Select DATASET in the parameters, with its grid if grids.DATASET exists."""
    from rs.params import read_params, section, validate
    from rs.recipes import merge
    from rs.storage import files

    values = read_params(params)
    grids, _ = merge(values, "grids", optional=True)
    for name in (dataset, *grids):
        section(values, f"recipes.{name}")
    grid = validate(dict[str, Any], grids.get(dataset, {}), f"grids.{dataset}")
    unknown = [key for key in grid if key not in GRID]
    if unknown:
        raise InputError(
            f"params.yaml: grids.{dataset} must have keys among {', '.join(GRID)}; got "
            f"{', '.join(unknown)}"
        )
    text = params.read_bytes().decode()
    has_windows_lines = "\r\n" in text
    changed = with_values(text.replace("\r\n", "\n"), {"dataset": dataset, **grid})
    if has_windows_lines:
        changed = changed.replace("\n", "\r\n")
    files.write_text(params.resolve(), changed)


def with_values(text: str, changes: dict[str, Any]) -> str:
    """Return YAML with other values at its top level; everything else stays, and comments too.

    >>> text = "dataset: digits  # which\\nlimit: null\\nsigmas:\\n  - 0.5\\n"
    >>> print(with_values(text, {"sigmas": [1.0]}), end="")
    dataset: digits  # which
    limit: null
    sigmas:
      - 1.0
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 2**16
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
