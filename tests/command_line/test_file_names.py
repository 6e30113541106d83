"""Names of pictures in rows: ``rs certify --images``, and what shows them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rs.command_line.certify import main as certify
from rs.command_line.exchange import export_rows, merge_rows
from rs.command_line.show import compare_files, report_files, show_files
from rs.errors import printable
from rs.smoothing.classifier import SmoothedClassifier
from rs.statistics.certificate import ABSTAIN
from rs.storage.certificate_rows import COLUMNS, FILE, read_rows, sidecar_of
from tests.support.helpers import Linear, ended, exit_code
from tests.support.stopped import stopped_after

LINEAR = "tests.support.helpers:Linear"
ODD = [b"a\tb.png", b"caf\xe9.png", b"line\nbreak.png", "\u2028 <b>ü&.png".encode(), b"plain.png"]
"""Names with a tab, no UTF-8, line breaks and HTML."""
SIDE = 4


@pytest.fixture(autouse=True)
def photos(own_folder):
    """Dark and bright pictures, whose first pixels all differ, by their names; one is wrong."""
    pixels = {}
    for label, folder in enumerate(("dark", "light")):
        Path("photos", folder).mkdir(parents=True)
        for number, name in enumerate(sorted(ODD)):
            gray = 255 * label + (1 - 2 * label) * (20 + 20 * number)
            if folder == "light" and number == 4:
                gray = 30
            path = os.fsencode(f"photos/{folder}/") + name
            Image.new("L", (SIDE, SIDE), gray).save(os.fsdecode(path), format="PNG")
            pixels[printable(os.fsdecode(path.removeprefix(b"photos/")))] = gray
    return pixels


WORDS = f"{LINEAR} --images photos --sigma 0.25 --n 200 --device cpu"


def certified(out, *more):
    assert exit_code(certify, *WORDS.split(), "--out", out, *more) == 0
    return Path(out)


def test_each_row_names_the_picture_that_it_certifies(photos):
    rows = read_rows(certified("rows.tsv"))
    assert sorted(rows[FILE]) == sorted(photos)
    smoothed = SmoothedClassifier(Linear(), 2, 0.25)
    for row in rows.to_dict("records"):
        x = torch.full((1, SIDE, SIDE), photos[row[FILE]] / 255)
        settings = {name: row[name] for name in ("n0", "n", "alpha")}
        certificate = smoothed.certify(x, **settings, seed=0, index=row["idx"])
        assert (row["predict"], row["radius"]) == (certificate.predict, certificate.radius)
    assert len({*rows["radius"]}) > 5  # or any order of the names would do


def test_shares_and_an_interrupted_run_keep_names():
    whole = certified("whole.tsv")
    with stopped_after(3):
        assert exit_code(certify, *WORDS.split(), "--out", "rows.tsv") == 130
    resumed = certified("rows.tsv")
    shares = [certified(f"{number}.tsv", "--share", f"{number}/3") for number in (1, 2, 3)]
    assert exit_code(merge_rows, *shares, "--out", "merged.tsv") == 0
    for path in (resumed, Path("merged.tsv")):
        assert path.read_bytes() == whole.read_bytes()
        assert sidecar_of(path).read_bytes() == sidecar_of(whole).read_bytes()


def test_the_weakest_pictures_are_shown_by_name(capfd):
    rows = read_rows(certified("rows.tsv"))
    code, out, _ = ended(capfd, show_files, "rows.tsv", "--json")
    listed = json.loads(out.splitlines()[-1])["weakest"]
    wrong = rows[rows["correct"] == 0]
    right = rows[rows["correct"] == 1].sort_values("radius")
    expected = [*wrong.sort_values("radius")[FILE], *right[FILE]][:5]
    assert (code, [image["file"] for image in listed]) == (0, expected)
    shown = ended(capfd, show_files, "rows.tsv")[1]
    assert all(f": {name}\n" in shown for name in expected)
    (mistaken,) = wrong[wrong["predict"] != ABSTAIN][FILE]
    assert f"wrong: {mistaken}\n" in shown


def test_the_report_names_each_picture():
    certified("rows.tsv")
    words = ["rows.tsv", "--images", "photos", "--out", "report.html"]
    assert exit_code(report_files, *words) == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "dark/plain.png" in page
    assert r"light/\u2028 &lt;b&gt;ü&amp;.png" in page
    assert r"light/caf\udce9.png" in page


def test_rows_with_and_without_names_are_compared_and_exported(capfd):
    with_names = certified("rows.tsv")
    lines = with_names.read_text(encoding="utf-8").splitlines()
    without = "".join(line.rpartition("\t")[0] + "\n" for line in lines)
    Path("old.tsv").write_text(without, encoding="utf-8")
    sidecar_of(Path("old.tsv")).write_bytes(sidecar_of(with_names).read_bytes())
    np.testing.assert_array_equal(read_rows(Path("old.tsv")), read_rows(with_names)[[*COLUMNS]])
    assert "weakest" not in ended(capfd, show_files, "old.tsv")[1]
    assert exit_code(compare_files, "old.tsv", "rows.tsv") == 0
    assert exit_code(export_rows, "rows.tsv", "--out", "log.tsv") == 0
