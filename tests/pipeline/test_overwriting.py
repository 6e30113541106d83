"""No command writes over what it reads, or over what it would not make itself."""

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rs.command_line.main import COMMANDS
from rs.models import checkpoint
from stages import (
    certify,
    certify_ensembles,
    ensemble,
    fingerprint,
    prepare,
    tables,
    train,
    weights,
)
from tests.support.folders import contents
from tests.support.helpers import ROOT, exit_code, refusal, update_json
from tests.support.tiny_study import make_rows, write_rows

DATASETS = {
    "tiny": {"source": "folder", "root": "raw"},
    "digits": {"source": "sklearn", "test_share": 0.2, "split_seed": 0},
}
export = ModuleType("export")
export.main = COMMANDS["export"]
import_ = ModuleType("import")
import_.main = COMMANDS["import"]
PAIR = "ensembles/macer-0-1.average"
MODEL = "--dataset tiny --data data --params ensembles.yaml --device cpu"
WORDS = {
    export: "rows.tsv --out new.tsv",
    certify: f"models/macer/0 {MODEL} --out new.tsv",
    train: f"gaussian {MODEL} --sigma 0.25 --seed 0 --out new --log new-log",
    import_: "c.pth --architecture smallnet --sigma 0.25 --normalisation none --data data --out "
    "new",
    prepare: "digits --params ensembles.yaml --out new",
    ensemble: "tiny --sigma 0.25 --models models --params ensembles.yaml --out new",
    weights: (
        "tiny --ensembles ensembles --data data --params ensembles.yaml --device cpu "
        "--out new --seconds new.csv"
    ),
    certify_ensembles: (
        "tiny --ensembles ensembles --weights weights --data data --params ensembles.yaml --device "
        "cpu --out new --times new-times"
    ),
    tables: "tiny --results results --weights weights --params ensembles.yaml --out new",
    fingerprint: f"--dataset tiny --prepared data --params ensembles.yaml --out new --root {ROOT}",
}


@pytest.fixture(autouse=True)
def place(pool_here):
    """The folder of a pool, with rows, a checkpoint, and other files."""
    update_json(Path("ensembles.yaml"), datasets=DATASETS)
    write_rows(make_rows(0.25, 0), Path("rows.tsv"))
    Path("link.tsv").symlink_to("rows.tsv")
    network = checkpoint.load_model(Path("models/macer/0"))[0].network
    torch.save({"state_dict": network.state_dict()}, "c.pth")
    Path("notes").mkdir()
    for name in ("history.csv", "provenance.json", "train.json", "a.tsv"):
        Path("notes", name).write_text("years of work\n")
    Path("nowhere").symlink_to("absent")
    Path("logs").mkdir()
    provenance = {"model": "macer of tiny, sigma 0.25, seed 3", "training_seconds": 1}
    Path("logs", "provenance.json").write_text(json.dumps(provenance))


def words_of(stage, changes="", more=()):
    """``WORDS`` of a command with other options, like ``out=new``, or another ``first`` word."""
    words = WORDS[stage].split()
    for change in changes.split():
        name, value = change.split("=")
        place = 0 if name == "first" else words.index(f"--{name}") + 1
        words[place] = value
    return [*words, *more]


def command(stage, changes="", more=()):
    """Run a command; its exit code."""
    return exit_code(stage.main, *words_of(stage, changes, more))


@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        (export, "out=rows.tsv"),
        (export, "out=link.tsv"),
        (export, "out=nowhere"),
        (certify, "out=rows.tsv"),
        (certify, f"first={PAIR}.json out={PAIR}.tsv"),
        (certify, "out=models/macer/0/model.tsv"),
        (train, "out=models/macer/0"),
        (train, "log=notes"),
        (train, "log=logs"),
        (import_, "out=models/macer/0"),
        (prepare, "out=notes"),
        (ensemble, "models=ensembles out=ensembles"),
        (weights, "seconds=nowhere"),
        (certify_ensembles, "out=ensembles"),
        (tables, "out=notes"),
        (fingerprint, "out=notes"),
    ],
    ids=lambda value: value.__name__ if hasattr(value, "main") else None,
)
def test_what_is_no_output_of_the_command_keeps_its_bytes(capfd, stage, changes):
    """Not even by force, where a command has that option."""
    before = contents(Path())
    line = refusal(capfd, stage.main, *words_of(stage, changes))
    assert any(word in line for word in ("name another", "remove it"))
    if stage in (export, import_):
        assert command(stage, changes, ["--force"]) == 2
    assert contents(Path()) == before


def test_an_input_inside_the_folder_to_be_replaced_is_kept(capfd):
    Path("models").rename("ensembles/models")
    before = contents(Path())
    words = words_of(ensemble, "models=ensembles/models out=ensembles")
    line = refusal(capfd, ensemble.main, *words)
    assert "must be new or a folder of ensembles, but ensembles/models, an input, is" in line
    assert contents(Path()) == before


def test_what_a_person_has_made_is_made_again_by_force_alone(capfd):
    """A log of another program has the same columns, and most published checkpoints have the same
    name.
    """
    for stage in (export, import_):
        assert command(stage) == 0
        made = contents(Path())
        capfd.readouterr()
        assert command(stage) == 2
        assert "is there; name another --out, or replace it with --force" in capfd.readouterr().err
        assert contents(Path()) == made
        assert command(stage, more=["--force"]) == 0
        assert contents(Path()) == made


@pytest.mark.parametrize("stage", [ensemble, weights, fingerprint])
def test_what_the_command_made_is_made_again(stage):
    assert command(stage) == 0
    made = contents(Path())
    assert command(stage) == 0
    changed = {name for name, _ in made.items() ^ contents(Path()).items()}
    assert changed <= {"new.csv"}  # wall-clock times


def test_rows_that_are_gone_are_certified_again_beside_their_sidecar():
    assert command(certify) == 0
    made = Path("new.tsv").read_bytes()
    Path("new.tsv").unlink()
    assert command(certify) == 0
    assert Path("new.tsv").read_bytes() == made


def test_a_training_whose_outputs_dvc_has_removed_trains_again():
    assert command(train) == 0
    made = Path("new/model.safetensors").read_bytes()
    shutil.rmtree("new")
    Path("new-log/history.csv").unlink()
    assert command(train) == 0
    assert Path("new/model.safetensors").read_bytes() == made
    assert Path("new-log/history.csv").is_file()
