"""The frame of ``make trust``: what it takes, what it leaves out of other runs, and its table."""

import re
from pathlib import Path

import pytest

from tests.support.helpers import ROOT
from tests.support.trust import FAMILIES, table


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family, names in FAMILIES.items() for name in names]
)
def test_what_a_family_names_is_there(family: str, name: str) -> None:
    path, _, start = name.partition("::")
    text = (ROOT / "tests" / path).read_text(encoding="utf-8")
    assert re.search(rf"^def {start or 'test_'}", text, re.MULTILINE)


def test_the_page_tells_of_every_family() -> None:
    marked = {
        family
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__)
        for family in re.findall(
            r'pytest\.mark\.trust_only\("([^"]+)"\)', path.read_text(encoding="utf-8")
        )
    }
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    told = re.findall(
        r"^\| ([a-z, ]+) \|", page.partition("## What `make trust` tries")[2], re.MULTILINE
    )
    assert told == ["family", *sorted(marked | set(FAMILIES))]


def test_the_table_adds_cases_up_by_family() -> None:
    assert table([("a", 10, True), ("a", 1, False), ("b", 1_000, True)]) == [
        "| family | tried | held or refused clearly | broken |",
        "|---|---:|---:|---:|",
        "| a | 11 | 10 | 1 |",
        "| b | 1,000 | 1,000 | 0 |",
        "| all | 1,011 | 1,010 | 1 |",
    ]
