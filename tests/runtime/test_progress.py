"""What is printed while work goes on, with a clock that the tests turn: ``rs.runtime.progress``."""

import re
import shlex

import pytest

from rs.runtime import progress as module
from rs.runtime.progress import progress, shell_lines


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the module sees; a test adds to ``clock[0]``."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("seconds", "how", "expected"),
    [
        ([10.0] * 6, {}, ["work: 3/6, 0.10/s, 30 s left", "work: 6/6, 0.10/s, 0 s left"]),
        ([7.0, 1.0], {}, ["work: 2/2, 0.25/s, 0 s left"]),
        ([7.0, 1.0], {"always": False}, []),
        ([2.0], {"done": 3}, ["work: 4/4, 0.50/s, 0 s left"]),
    ],
    ids=["long", "short", "short and silent", "continued"],
)
def test_without_a_terminal_there_is_a_line_every_half_minute_and_at_the_end(
    clock, capfd, seconds, how, expected
):
    total = len(seconds) + how.get("done", 0)
    for took in progress(seconds, total, "work", **how):
        clock[0] += took
    assert capfd.readouterr().err.splitlines() == expected


COMMAND = "rs certify model --data data --subset '{first: 20}' --network package.module:function"


@pytest.mark.parametrize("width", range(1, 120))
def test_a_shell_reads_a_broken_command_as_the_whole_one(width):
    lines = shell_lines(COMMAND, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(COMMAND)
    for line in lines:
        assert len(line) <= width or len(re.findall(" --", f" {line}")) <= 1
