"""The table of machines: ``benchmarks.roofline.grow``."""

import pytest

from benchmarks.roofline import HEAD, grow

pytestmark = pytest.mark.trust_only


def row(processor, way, ratio, network="resnet20"):
    return [processor, network, "1", way, ratio, *[""] * (len(HEAD) - 5)]


def test_a_machine_replaces_its_own_rows_and_keeps_those_of_others(tmp_path):
    page = tmp_path / "roofline.md"
    grow(page, [row("A, avx2", "loop", "1.00"), row("A, avx2", "folded", "1.40")])
    grow(page, [row("B", "loop", "1.00")])
    grow(page, [row("A, avx2", "loop", "1.00", "resnet110")])
    grow(page, [row("A, avx2", "loop", "1.00"), row("A, avx2", "folded", "1.50")])
    _, _, *lines = page.read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")][:5] for line in lines]
    assert cells == [
        ["A, avx2", "resnet110", "1", "loop", "1.00"],
        ["A, avx2", "resnet20", "1", "loop", "1.00"],
        ["A, avx2", "resnet20", "1", "folded", "1.50"],
        ["B", "resnet20", "1", "loop", "1.00"],
    ]


def test_the_same_rows_make_the_same_page(tmp_path):
    rows, page = [row("A", "loop", "1.00"), row("A", "folded", "1.40")], tmp_path / "roofline.md"
    grow(page, rows)
    before = page.read_bytes()
    grow(page, rows)
    assert page.read_bytes() == before
