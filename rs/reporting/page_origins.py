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
from rs.study.layout import pool_rows

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
"""Where a result comes from: ``file``, ``command``, and in a study ``parameters``."""


def origin_key(result: Result) -> tuple[str, float, int | None, tuple[tuple[str, int], ...]]:
    """Return what tells a result from all others of a page."""
    return result.name, result.sigma, result.seed, result.members


def study_origins(study: StudyFiles) -> dict[Any, Origin]:
    """Return the file, command and parameters of each result, as in the pipeline."""
    results = Path("results", study.dataset)
    declared = study.values.get("combinations") or {}
    origins: dict[Any, Origin] = {}
    for cell in study.cells:
        sigma = float(cell.sigma)
        origins[cell.method, sigma, cell.seed, ()] = {
            "file": cell.rows(results).as_posix(),
            "command": cell.command("certify"),
            "parameters": grid.configuration(study.values, study.dataset, cell.method, sigma),
        }
    for sigma in study.sigmas:
        for ensemble in study.ensembles:
            origins[study.name_of(ensemble), float(sigma), None, ensemble.members] = {
                "file": pool_rows(results, sigma, ensemble.slug).as_posix(),
                "command": study.command("certify_ensembles", sigma),
                "parameters": {"combination": ensemble.key, **declared[ensemble.key]},
            }
    return origins


def describe_origins(origins: Sequence[Origin], first: Result) -> str:
    """Return the origins of a group of results in HTML, with the sidecar of the first one."""
    lines = [origin["file"] for origin in origins]
    lines += dict.fromkeys(origin["command"] for origin in origins)
    stated = first.provenance.to_json()
    certified = {name: stated[name] for name in SIDECAR if name in stated}
    budget: dict[str, float] = {}
    for name, value in first.terms.budget.items():
        budget[name] = int(value) if value.is_integer() else value
    values = {
        "parameters": origins[0].get("parameters"),
        "certified with": budget | certified,
        "weights chose": first.member_votes,
    }
    definitions = [_definition(name, value) for name, value in values.items() if value]
    return f"<pre>{escape(chr(10).join(lines))}</pre><dl>{''.join(definitions)}</dl>"


def _definition(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)[1:-1].replace('"', "")
    return f"<dt>{name}</dt><dd>{escape(text)}</dd>"
