"""``rs certify --share`` on several machines, and ``rs merge``."""

from pathlib import Path

import pytest

from rs.command_line.certify import main as certify
from rs.command_line.doctor import main as doctor
from rs.command_line.exchange import merge_rows as merge
from rs.command_line.show import compare_files, report_files, show_files
from rs.command_line.train import main as train
from rs.storage.certificate_rows import sidecar_of
from rs.storage.files import read_json
from tests.support.helpers import exit_code, refusal, update_json

LINEAR = "tests.support.helpers:Linear"
pytestmark = pytest.mark.usefixtures("tiny_project")


def certified(out, *more):
    """Exit code of a certification into a file."""
    words = f"{LINEAR} --dataset tiny --data data --sigma 0.5 --device cpu"
    return exit_code(certify, *words.split(), "--out", out, *more)


@pytest.mark.parametrize(
    ("count", "more"),
    [(1, ()), (2, ("--at-radius", "0.1,0.5")), (3, ("--subset", "{range: [0, 10]}"))],
)
def test_merged_shares_are_the_bytes_of_one_certification(count, more):
    assert certified("whole.tsv", *more) == 0
    names = []
    for number in range(count, 0, -1):
        names.append(f"share-{number}.tsv")
        assert certified(names[-1], "--share", f"{number}/{count}", *more) == 0
    assert exit_code(merge, *names, "--out", "merged.tsv") == 0
    for path in (Path, sidecar_of):
        assert path(Path("merged.tsv")).read_bytes() == path(Path("whole.tsv")).read_bytes()
    whole = read_json(sidecar_of(Path("whole.tsv")))
    assert (whole["split_size"], whole["rows"]) == (10, 10)
    assert exit_code(show_files, *names, "merged.tsv") == 0


REFUSED = {
    "1.tsv 3.tsv": "each of 3 shares must be given once, got 2 files; missing: 2/3",
    "1.tsv 2.tsv 2.tsv 3.tsv": "must be given once, got 4 files; missing: none",
    "1.tsv of-2.tsv 3.tsv": "each of 3 shares must be given once",
    "1.tsv 2.tsv other.tsv": "other.tsv must be of the same certification as 1.tsv, but",
    "1.tsv whole.tsv": "whole.tsv must be written by rs certify --share",
    "1.tsv 2.tsv none.tsv": "none.tsv must be written by rs certify --share",
    "1.tsv 2.tsv short.tsv": "short.tsv must hold 3 rows, but has 2",
}


def test_what_is_not_every_share_of_one_certification_is_one_line(capfd):
    shares = {"1": "1/3", "2": "2/3", "3": "3/3", "of-2": "2/2", "short": "3/3", "none": "3/3"}
    for name, share in shares.items():
        certified(f"{name}.tsv", "--share", share)
    certified("other.tsv", "--share", "3/3", "--n", "77")
    certified("whole.tsv")
    update_json(sidecar_of(Path("none.tsv")), share="1/0")
    Path("short.tsv").write_text("".join(Path("3.tsv").read_text().splitlines(True)[:-1]))
    capfd.readouterr()
    for names, message in REFUSED.items():
        assert message in refusal(capfd, merge, *names.split(), "--out", "merged.tsv")
        assert not Path("merged.tsv").exists()


def test_names_of_files_forge_no_line_and_no_escape_sequence(capfd):
    rows, out = "a\x1b[2J\nforged.tsv", "b\x1b[2J\nforged"
    assert certified(rows) == 0
    assert certified(rows) == 0  # which is already complete
    assert certified("share-1.tsv", "--share", "1/1") == 0
    training = "gaussian --dataset tiny --data data --sigma 0.5"
    for command, *words in (
        (merge, "share-1.tsv", "--out", f"{out}.tsv"),
        (show_files, rows),
        (compare_files, rows, f"{out}.tsv"),
        (report_files, rows, "--out", f"{out}.html"),
        (train, *training.split(), "--out", out, "--log", f"{out}.d"),
    ):
        assert exit_code(command, *words) == 0
    exit_code(doctor, out, "--data", "data", "--count", "20")
    printed = "\n".join(capfd.readouterr())
    assert "\x1b" not in printed
    assert not any(line.startswith("forged") for line in printed.splitlines())
    assert printed.count(r"\nforged") > 10


@pytest.mark.parametrize("share", ["0/3", "4/3", "1/11", "one/3"])
def test_a_share_that_is_none_is_one_line(capfd, share):
    assert certified("rows.tsv", "--share", share) == 2
    assert "with at most 10 shares for 10 images" in capfd.readouterr().err
