"""The section ``tables`` of params.yaml, and its check against other sections; without pandas."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rs.errors import InputError
from rs.params import NonNegative, validated
from rs.recipes import load_section
from rs.statistics.certificate import PER_IMAGE_SCOPE
from rs.study.ensembles import declared_ensembles
from rs.study.grid import cells, pool_cells


@validated
class ReportSettings:
    """Section ``tables`` of params.yaml."""

    # of tables of certified accuracy, in pixels of [0, 1]
    radii: Annotated[list[NonNegative], Field(min_length=1)]
    reference: str  # method that all others are compared with, in addition to advmacer
    combination: str  # of the ensembles in the tables of methods; their names do not state it
    remarks: list[str]  # about the data, on every page of the report


def report_settings(values: dict[str, Any]) -> ReportSettings:
    """Return the section ``tables``, whose combination must be sound and used by ensembles.

    Raises:
        InputError: If it is not; names the key.
    """
    settings = load_section(values, "tables", ReportSettings)
    combinations = {ensemble.key: ensemble.combination for ensemble in declared_ensembles(values)}
    if not combinations:
        return settings
    if settings.combination not in combinations:
        raise InputError(
            "params.yaml: tables.combination must be one that ensembles have, "
            f"{', '.join(combinations)}; got {settings.combination!r}"
        )
    if combinations[settings.combination].scope == PER_IMAGE_SCOPE:
        raise InputError(
            "params.yaml: tables.combination must be one whose certificates are sound, "
            f"got {settings.combination}; its weights depend on the image"
        )
    return settings


def check_study(values: dict[str, Any], dataset: str) -> None:
    """Check the grid, ``combinations``, ``ensembles`` and ``tables`` before any stage runs.

    The stage ``fingerprint`` checks what needs torch: rules of combinations and values of recipes.
    ``tables`` may be left out.

    Raises:
        InputError: If one of them is invalid, or does not fit the others; names the key.
    """
    for sigma in dict.fromkeys(cell.sigma for cell in cells(values, dataset)):
        pool_cells(values, dataset, sigma)
    if "tables" in values:
        report_settings(values)
