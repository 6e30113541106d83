"""Committed results agree with each other: rows, reports, the pages made of them, and the lock
file.
"""

import functools

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from benchmarks.common import unpack_rows
from benchmarks.page_tables.committed import LEVELS, Committed
from benchmarks.pages import BLOCK, blocks, fill, pages
from rs.statistics.metrics import acr
from rs.storage import certificate_rows
from tests.support.helpers import ROOT, refuses
from tests.support.small_project import run

EVERY = [block for page in pages() for block in blocks(page)]
# The report of digits is not here: `make repro` makes it again, on each machine its own.
MADE_OF_ROWS = [block for block in EVERY if not block[1].startswith("digits")]


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """The project, and the rows of each study unpacked, of which each file is read once."""
    folder = tmp_path_factory.mktemp("rows")
    unpack_rows(ROOT / "reports/rows", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate_rows, "read_rows", functools.cache(certificate_rows.read_rows))
        yield Committed(ROOT, folder)


def test_the_lock_file_has_the_cells_of_the_pipeline_and_no_others():
    stages = YAML(typ="safe", pure=True).load((ROOT / "dvc.lock").read_text())["stages"]
    assert {*stages} == {*run(ROOT, "dvc", "stage", "list", "--name-only").split()}


@pytest.mark.parametrize("block", MADE_OF_ROWS, ids=lambda block: block[1])
def test_make_pages_changes_no_table_that_is_made_of_committed_rows(block, committed):
    assert fill(block, committed) == block[0]


@pytest.mark.parametrize("level", LEVELS)
def test_the_acrs_on_cifar10_are_those_of_the_committed_rows(committed, level):
    frame = pd.read_csv(ROOT / "reports/cifar10-cpu/main.csv", index_col=["method", "sigma"])
    for method in committed.methods():
        row = frame.loc[(method, float(level))]
        frames, _ = committed.trainings(method, level)
        assert len(frames) == row["seeds"]
        assert np.mean([acr(frame) for frame in frames]) == pytest.approx(row["acr"], rel=1e-12)


def test_a_block_without_an_end_is_refused_before_a_page_is_overwritten(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: a -->\n<!-- generated: b -->\n<!-- end -->")
    with refuses("must have one <!-- end -->"):
        blocks(page)


def test_a_block_of_an_unknown_name_is_refused(committed):
    block = BLOCK.fullmatch("<!-- generated: no_such_table -->\n<!-- end -->")
    with refuses("must name a function of a table or text, got 'no_such_table'"):
        fill(block, committed)
