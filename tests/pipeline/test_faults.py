"""Kills and full disks in the middle of a stage and of a command; the same command continues."""

import pytest

from tests.support.helpers import python

OPTIONS = "--dataset tiny --data data --params params.yaml --device cpu"
COMMANDS = {
    "stages.train": f"gaussian {OPTIONS} --sigma 0.25 --seed 0 --out new --log log",
    "rs.command_line.certify": f"model {OPTIONS} --out new.tsv",
}


@pytest.mark.trust_only
@pytest.mark.parametrize("module", COMMANDS)
def test_what_is_struck_anywhere_continues_to_the_bytes_of_an_unbroken_run(
    tiny_project, tmp_path, module
):
    words = COMMANDS[module].split()
    done = python("-m", "tests.support.faults", module, *words, cwd=tmp_path, RS_WORK=".work")
    assert done.returncode == 0, done.stderr[-5000:]
