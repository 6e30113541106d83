"""Where each number of the report page comes from: files, commands and parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from rs.reporting.load import StudyFiles
from rs.reporting.results import Result
from rs.study import grid
from rs.study.layout import pool_rows, pool_target

SIDECAR = (
    "code",
    "versions",
    "device",
    "precision",
    "engine",
    "arithmetic",
    "outputs",
    "seed",
    "subset",
    "images",
)
"""What the page tells of the sidecar of rows."""

Origin = dict[str, Any]
"""Where a result comes from: ``file``, ``command``; in a study ``target`` and ``parameters``."""


def origin_key(result: Result) -> tuple[str, float, int | None, tuple[tuple[str, int], ...]]:
    """Return what tells a result from all others of a page."""
    return result.name, result.sigma, result.seed, result.members


def study_origins(study: StudyFiles) -> dict[Any, Origin]:
    """Return the file, target, command and parameters of each result, as in the pipeline."""
    results, dataset = Path("results", study.dataset), study.dataset
    declared = study.values.get("combinations") or {}
    origins: dict[Any, Origin] = {}
    for cell in study.cells:
        file = cell.rows(results).as_posix()
        model = cell.model(Path("models", dataset))
        command = (
            f"python -m stages.certify {model} --dataset {dataset} --data data/{dataset} --out "
            f"{file} --times logs/{dataset}/{cell.sigma}/{cell.method}-{cell.seed}.seconds.csv"
        )
        sigma = float(cell.sigma)
        origins[cell.method, sigma, cell.seed, ()] = {
            "file": file,
            "target": cell.target("certify"),
            "command": _pool_command(dataset, cell.sigma) if cell.is_member_seed else command,
            "parameters": grid.configuration(study.values, dataset, cell.method, sigma),
        }
    for sigma in study.sigmas:
        for ensemble in study.ensembles:
            origins[study.name_of(ensemble), float(sigma), None, ensemble.members] = {
                "file": pool_rows(results, sigma, ensemble.slug).as_posix(),
                "target": pool_target("certify_ensembles", dataset, sigma),
                "command": _pool_command(dataset, sigma),
                "parameters": {"combination": ensemble.key, **declared[ensemble.key]},
            }
    return origins


def _pool_command(dataset: str, sigma: Any) -> str:
    """Return the command that certifies further seeds and ensembles of a noise level."""
    cell = f"{dataset}/{sigma}"
    return (
        f"python -m stages.certify_ensembles {dataset} --ensembles ensembles/{cell} --weights "
        f"weights/{cell} --data data/{dataset} --out results/{cell}/pool --times logs/{cell}"
    )


def describe_origins(origins: Sequence[Origin], first: Result) -> str:
    """Return the origins of a group of results in HTML, with the sidecar of the first one."""
    lines = [origin["file"] for origin in origins]
    lines += dict.fromkeys(origin["command"] for origin in origins)
    targets = dict.fromkeys(origin["target"] for origin in origins if "target" in origin)
    stated = first.provenance.to_json()
    certified = {name: stated[name] for name in SIDECAR if name in stated}
    values = {
        "DVC targets": ", ".join(targets),
        "parameters": origins[0].get("parameters"),
        "certified with": first.terms.budget | certified,
        "weights chose": first.member_votes,
    }
    definitions = [_definition(name, value) for name, value in values.items() if value]
    return f"<pre>{escape(chr(10).join(lines))}</pre><dl>{''.join(definitions)}</dl>"


def _definition(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)[1:-1].replace('"', "")
    return f"<dt>{name}</dt><dd>{escape(text)}</dd>"
