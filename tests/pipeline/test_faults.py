"""Kills, interruptions and errors of the machine in the middle of every stage; the same command then continues."""

import json

import pytest

from tests.support.faults import WORDS
from tests.support.helpers import python


def strike(trials, stages, seconds):
    """What ``support.faults`` tried; nothing of it may be broken."""
    done = python("-m", "tests.support.faults", trials, *stages, timeout=seconds)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["broken"] == []
    return found["tried"]


@pytest.mark.slow
def test_what_is_struck_at_a_few_points_continues_and_ends_with_the_bytes_of_an_unbroken_run():
    tried = strike(2, ["certify", "train", "ensemble"], seconds=600)
    kinds = {name.split(": ")[1] for name in tried}
    assert kinds >= {"kill", "term", "int", "ENOSPC", "files of 0 bytes", "clock going backwards"}


@pytest.mark.trust("kills and interruptions")
@pytest.mark.parametrize("stage", WORDS)
def test_what_is_struck_at_any_point_continues_and_ends_with_the_bytes_of_an_unbroken_run(stage, record_property):
    tried = strike(0, [stage], seconds=3600)
    record_property("tried", sum(tried.values()))
    if not any("a disk with" in name for name in tried):
        record_property("family", "kills and interruptions (no full disk: mounting is not allowed here)")
