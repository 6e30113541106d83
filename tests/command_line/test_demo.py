"""The command ``rs demo``, as a person runs it first."""

from rs.command_line.demo import main as demo
from rs.runtime.arithmetic import PORTABLE
from rs.storage import certificate_rows
from tests.support.folders import contents
from tests.support.helpers import python, refusal


def test_the_demonstration_leaves_a_model_its_rows_and_a_report(tmp_path):
    done = python(
        "-m", "rs.command_line.main", "demo", "--out", "first look", cwd=tmp_path, without=PORTABLE
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "first look"
    assert len(certificate_rows.read_rows(folder / "rows.tsv")) == 20
    assert (folder / "model" / "model.safetensors").is_file()
    assert done.stderr.splitlines()[-1] == "next: open first look/report.html in a browser"
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_demonstration_replaces_no_files_of_others(tmp_path, capfd):
    (tmp_path / "report.html").write_text("mine")
    before = contents(tmp_path)
    assert "must be new or a demonstration" in refusal(capfd, demo, "--out", tmp_path)
    assert contents(tmp_path) == before
