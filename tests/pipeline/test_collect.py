"""What git keeps of a campaign: ``benchmarks.collect``."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import collect
from benchmarks.plan import read_plan
from rs.storage import certificate_rows
from tests.support.small_project import ROOT
from tests.support.tiny_study import make_rows


@pytest.mark.parametrize("size", [collect.LARGEST, collect.LARGEST + 1])
def test_a_file_is_compressed_if_it_is_large_and_its_bytes_come_back(tmp_path, monkeypatch, size):
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    path = Path("results/rows.tsv")
    path.write_bytes(data := bytes(i % 251 for i in range(size)))
    kept = collect.keep(path, Path("kept"))
    first = kept.read_bytes()
    assert (first if size <= collect.LARGEST else gzip.decompress(first)) == data
    assert kept == Path("kept/results", "rows.tsv" if size <= collect.LARGEST else "rows.tsv.gz")
    assert collect.keep(path, Path("kept")).read_bytes() == first
    path.write_bytes(data[: collect.LARGEST])  # now it is small
    collect.keep(path, Path("kept"))
    assert [one.name for one in Path("kept/results").iterdir()] == ["rows.tsv"]


def test_compressed_rows_are_read_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(collect, "LARGEST", 10)
    certificate_rows.write(make_rows(0.5, 1), Path("rows.tsv"))
    pd.testing.assert_frame_equal(
        pd.read_csv(collect.keep(Path("rows.tsv"), Path("kept")), sep="\t"), pd.read_csv("rows.tsv", sep="\t")
    )


def test_rows_and_logs_of_finished_legs_are_kept_and_weights_are_not(tmp_path, monkeypatch, capsys):
    for name in ("params.yaml", "dvc.yaml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    for name in ("rs", "stages"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    names = ["certify@digits-gaussian-0.5-0", "certify@digits-macer-0.5-0"]
    Path("plan.yaml").write_text(json.dumps({"params": {}, "steps": [{"legs": names}]}))
    state = {}
    for step in read_plan("plan.yaml", None):
        for out in step.leg.outs:
            target = out if out.suffix else out / "file"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(step.name)
        state[step.name] = {"identity": step.identity, "finished": "macer" not in step.name, "seconds": []}
    Path("campaign.json").write_text(json.dumps(state))
    collect.main("plan.yaml", Path("kept"))
    base = Path("kept/results/digits/0.5")
    kept = {base / f"gaussian-0.{end}" for end in ("tsv", "json", "seconds.csv")}
    kept.add(Path("kept/logs/digits/0.5/gaussian/0/file"))
    assert {path for path in Path("kept").rglob("*") if path.is_file()} == kept
    assert {Path(line) for line in capsys.readouterr().out.split()} == kept
