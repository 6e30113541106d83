"""Where each number of the report page comes from: files, commands and parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from rs.reporting.results import Result

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


def describe_origins(results: Sequence[Result]) -> str:
    """Return the origins of a group of results in HTML, with the sidecar of the first one."""
    first = results[0]
    lines = [result.origin["file"] for result in results]
    lines += dict.fromkeys(result.origin["command"] for result in results)
    stated = first.provenance.to_json()
    certified = {name: stated[name] for name in SIDECAR if name in stated}
    budget: dict[str, float] = {}
    for name, value in first.terms.budget.items():
        budget[name] = int(value) if value.is_integer() else value
    values = {
        "parameters": first.origin.get("parameters"),
        "certified with": budget | certified,
        "weights chose": first.member_votes,
    }
    definitions = [_definition(name, value) for name, value in values.items() if value]
    return f"<pre>{escape(chr(10).join(lines))}</pre><dl>{''.join(definitions)}</dl>"


def _definition(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)[1:-1].replace('"', "")
    return f"<dt>{name}</dt><dd>{escape(text)}</dd>"
