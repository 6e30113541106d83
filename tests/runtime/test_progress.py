"""What is printed while work goes on, with a clock that the tests turn: ``rs.runtime.progress``."""

import io
import re
import shlex

import pytest

from rs.runtime import progress as module
from rs.runtime.progress import progress, say, shell_lines


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the module sees; a test adds to ``clock[0]``."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def lines(clock, capfd, seconds, **how):
    """The lines on stderr of items that take so many seconds each."""
    for took in progress(seconds, len(seconds), "work", **how):
        clock[0] += took
    return capfd.readouterr().err.splitlines()


def test_without_a_terminal_there_is_a_line_every_half_minute_and_at_the_end(clock, capfd):
    expected = ["work: 3/6, 0.10/s, 30 s left", "work: 6/6, 0.10/s, 0 s left"]
    assert lines(clock, capfd, [10.0] * 6) == expected
    assert lines(clock, capfd, [10.0] * 6, always=False) == expected


def test_short_work_prints_one_line_or_none(clock, capfd):
    assert lines(clock, capfd, [7.0, 1.0]) == ["work: 2/2, 0.25/s, 0 s left"]
    assert lines(clock, capfd, [7.0, 1.0], always=False) == []


def test_what_was_done_before_counts_in_the_number_and_not_in_the_rate(clock, capfd):
    for _ in progress([1], 4, "work", done=3):
        clock[0] += 2.0
    assert capfd.readouterr().err == "work: 4/4, 0.50/s, 0 s left\n"


WORDS = "next to a path/of/more/than/twenty-four/characters stand short words"


def test_a_line_is_broken_between_words_where_columns_are_known(monkeypatch):
    stream = io.StringIO()
    say(WORDS, stream)
    assert stream.getvalue() == f"{WORDS}\n"
    monkeypatch.setenv("COLUMNS", "24")
    stream = io.StringIO()
    say(WORDS, stream)
    parts = stream.getvalue().splitlines()
    assert " ".join(part.strip() for part in parts) == WORDS
    assert [len(part) > 24 for part in parts] == ["/" in part for part in parts]


COMMAND = "rs certify model --data data --subset '{first: 20}' --network package.module:function"


@pytest.mark.parametrize("width", range(1, 120))
def test_a_shell_reads_a_broken_command_as_the_whole_one(width):
    lines = shell_lines(COMMAND, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(COMMAND)
    for line in lines:
        assert len(line) <= width or len(re.findall(" --", f" {line}")) <= 1
