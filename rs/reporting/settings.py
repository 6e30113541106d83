"""The section ``tables`` of params.yaml, and whether it fits what else is declared; without pandas,
so quick to ask.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rs.errors import InputError
from rs.params import NonNegative, load_section, validated
from rs.statistics.certificate import UNSOUND
from rs.study.ensembles import declared_ensembles
from rs.study.grid import cells, pool_cells


@validated
class ReportSettings:
    """Section ``tables`` of params.yaml."""

    radii: Annotated[
        list[NonNegative], Field(min_length=1)
    ]  # of the tables of certified accuracy, pixels of [0, 1]
    reference: str  # the method to which all are compared, beside advmacer
    combination: (
        str  # of the ensembles that stand beside the methods; it goes without saying in their names
    )
    remarks: list[str]  # what must be said of the data, on every page of the report


def report_settings(values: dict[str, Any]) -> ReportSettings:
    """Return the section ``tables``, after checking that ensembles have its combination, and that
    it is sound.

    Raises:
        InputError: If not; names the key.
    """
    settings = load_section(values, "tables", ReportSettings)
    combinations = {ensemble.key: ensemble.combination for ensemble in declared_ensembles(values)}
    if combinations and settings.combination not in combinations:
        raise InputError(
            "params.yaml: tables.combination must be one that ensembles have, "
            f"{', '.join(combinations)}; "
            f"got {settings.combination!r}"
        )
    if combinations and combinations[settings.combination].scope == UNSOUND:
        raise InputError(
            "params.yaml: tables.combination must be one whose certificates are sound, "
            f"got {settings.combination}; its weights depend on the image"
        )
    return settings


def check_study(values: dict[str, Any], dataset: str) -> None:
    """Check the grid, ``combinations``, ``ensembles`` and ``tables`` before any stage spends time
    on them.

    What needs torch, rules of combinations and values of recipes, the stage ``fingerprint`` checks.
    ``tables`` may be left out.

    Raises:
        InputError: If one of them is not what it must be, or does not fit the others; names the
            key.
    """
    for sigma in dict.fromkeys(cell.sigma for cell in cells(values, dataset)):
        pool_cells(values, dataset, sigma)
    if "tables" in values:
        report_settings(values)
