"""The frame of ``make trust``: what it takes, what it leaves out of other runs, and its table."""

import re
from pathlib import Path

import pytest

from tests.support.helpers import ROOT
from tests.support.trust import FAMILIES, family_of, module_of, table


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, names in FAMILIES.items() for name in names])
def test_what_a_family_names_is_there(family: str, name: str) -> None:
    path, _, start = name.partition("::")
    text = (ROOT / "tests" / path).read_text(encoding="utf-8")
    assert re.search(rf"^def {start or 'test_'}", text, re.MULTILINE)


def test_the_page_tells_of_every_family() -> None:
    marked = {
        family
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__)
        for family in re.findall(r'pytest\.mark\.trust_only\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| ([a-z, ]+) \|", page.partition("## What `make trust` tries")[2], re.MULTILINE)
    assert told == ["family", *sorted(marked | set(FAMILIES))]


def test_the_family_of_a_test_is_that_of_its_marker_or_of_its_name() -> None:
    listed = "tests/smoothing/test_determinism.py::test_anything[1]"
    assert family_of(listed) == "models that are not one function"
    assert family_of(listed, ["faults"]) == "faults"
    assert family_of("tests/study/test_grid.py::test_anything") is None
    assert module_of("tests/storage/test_full_disk.py::test_anything[a::b]") == "full disk"


def test_the_table_adds_cases_up_by_family() -> None:
    assert table([("a", 10, True), ("a", 1, False), ("b", 1_000, True)]) == [
        "| family | tried | held or refused clearly | broken |",
        "|---|---:|---:|---:|",
        "| a | 11 | 10 | 1 |",
        "| b | 1,000 | 1,000 | 0 |",
        "| all | 1,011 | 1,010 | 1 |",
    ]
