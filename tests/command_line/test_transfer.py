"""``rs transfer``: certificates of a changed model by the rows of the one that it was made from."""

import json
from pathlib import Path

import numpy as np
import pytest

import rs
from rs.command_line.certify import main as certify
from rs.command_line.exchange import export_rows
from rs.command_line.show import show_files
from rs.command_line.transfer import main as transfer
from rs.errors import InputError
from rs.runtime.streams import Stream
from rs.smoothing.inputs import as_image
from rs.statistics.radius import lower_bound, upper_bound
from rs.storage.certificate_rows import read_rows, sidecar_of
from tests.support.helpers import Linear, exit_code, update_json, write_photos

SOURCE = "tests.support.helpers:Linear"  # class 1 where the first pixel exceeds 0.5
LEVELS = (0, 60, 110, 140, 200, 255)
DRAWS = 500


def stricter():
    """Lose some of the votes for class 1, and none of those for class 0."""
    return Linear(0.6)


TARGET = f"{__name__}:stricter"


@pytest.fixture(autouse=True)
def rows(tmp_path, work, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    images = [np.full((1, 4, 4), level, dtype=np.uint8) for level in LEVELS]
    write_photos(Path("photos"), images, [level > 127 for level in LEVELS])
    exit_code(certify, SOURCE, "--sigma", "0.5", "--out", "rows.tsv", *PICTURES)
    return read_rows(Path("rows.tsv"))


PICTURES = ("--images", "photos", "--device", "cpu")


def transferred(source=SOURCE, target=TARGET, out="out.tsv", draws=DRAWS, more=()):
    words = "--from", source, "--to", target, "--out", out, "--n", draws, *PICTURES, *more
    return exit_code(transfer, "rows.tsv", *words)


def test_rows_have_the_bound_of_the_votes_less_that_of_the_losses(rows, capfd):
    assert transferred() == 0
    table = read_rows(Path("out.tsv"))
    models = [rs.load(model).smooth(0.5) for model in (Linear(), stricter())]
    for row, transferred_row in zip(rows.itertuples(), table.itertuples(), strict=True):
        x = as_image(np.full((1, 4, 4), LEVELS[row.idx], dtype=np.uint8))
        first, second = (model.votes_by_draw(x, DRAWS, 0, Stream.ESTIMATE, row.idx) for model in models)
        drawn = models[0].votes(x, DRAWS, 0, Stream.ESTIMATE, row.idx)
        assert np.bincount(first, minlength=2).tolist() == drawn.tolist()
        selected = max(range(2), key=models[0].votes(x, 100, 0, Stream.SELECT, row.idx).tolist().__getitem__)
        losses = int(((first == selected) & (second != selected)).sum()) if row.predict >= 0 else DRAWS
        votes = int((models[0].votes(x, 1000, 0, Stream.ESTIMATE, row.idx))[selected])
        bound = max(0.0, lower_bound(votes, 1000, 0.0005) - upper_bound(losses, DRAWS, 0.0005))
        assert (transferred_row.losses, transferred_row.p_lower) == (losses, pytest.approx(bound, rel=1e-12))
        assert transferred_row.predict == (selected if bound >= 0.5 else -1)
    assert (table["radius"] <= rows["radius"]).all()
    assert {"0"} < {*table["losses"].astype(str)}
    assert set(table["mode"]) == {f"transfer:{DRAWS}"}


def test_the_true_radius_of_the_changed_model_is_not_exceeded():
    transferred()
    table = read_rows(Path("out.tsv"))
    distances = np.array([level / 255 - 0.6 for level in LEVELS])[table["idx"]]
    right = table["predict"] == (distances > 0)
    assert (table["radius"][right] <= np.abs(distances)[right]).all()
    assert (table["radius"][~right] == 0).all()


def test_the_sidecar_names_what_the_rows_rest_on(rows, capfd):
    update_json(sidecar_of(Path("rows.tsv")), members=[["gaussian", 0, "a SHA-256"]], weights=[1.0])
    transferred()
    source, sidecar = (json.loads(sidecar_of(Path(name)).read_text()) for name in ("rows.tsv", "out.tsv"))
    assert sidecar["transfer"]["classifier"] == source["classifier"] != sidecar["classifier"]
    assert (sidecar["transfer"]["draws"], sidecar["images"]) == (DRAWS, source["images"])
    assert not {"members", "weights"} & {*sidecar}
    assert exit_code(show_files, "out.tsv") == 0
    assert f"transferred         votes of another model; {DRAWS} draws compared the two" in capfd.readouterr().out
    assert exit_code(export_rows, "out.tsv", "--out", "out.log") == 0
    assert f"the certificates are of mode transfer:{DRAWS}; the six columns cannot say so" in capfd.readouterr().err


def test_each_network_is_watched_in_its_own_precision(rows, monkeypatch):
    update_json(sidecar_of(Path("rows.tsv")), precision="bfloat16")
    precisions = []
    monkeypatch.setattr(
        "rs.certification.transfer.watched", lambda items, _, precision: precisions.append(precision) or items
    )
    assert transferred() == 0
    assert precisions == ["bfloat16", "float32"]


def test_the_precision_of_folded_weights_is_in_the_sidecar(rows):
    assert transferred(more=("--precision", "bfloat16", "--engine", "folded")) == 0
    sidecar = json.loads(sidecar_of(Path("out.tsv")).read_text())
    assert (sidecar["precision"], sidecar["engine"]) == ("bfloat16", "folded")


def test_rows_of_another_engine_are_refused(capfd, monkeypatch):
    """A compiler that fails here leaves the first model folded, whose votes differ."""

    def no_compiler(*_):
        raise RuntimeError("no compiler")

    update_json(sidecar_of(Path("rows.tsv")), engine="compiled")
    monkeypatch.setattr("rs.certification.inference._compiled", no_compiler)
    assert transferred() == 2
    assert "the engine of its sidecar is compiled, not folded" in capfd.readouterr().err


def test_the_arithmetic_is_that_of_the_rows(capfd):
    """A command of its own chooses it before the libraries are loaded, as they are here."""
    update_json(sidecar_of(Path("rows.tsv")), arithmetic="portable")
    assert transferred() == 2
    assert "the arithmetic of rows.tsv must be chosen before numpy and torch are loaded" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("losses", "lost", "the columns must be"),
        (f"transfer:{DRAWS}\tmodel\t0", f"transfer:{DRAWS}\tmodel\t1", "p_lower must be"),
        (f"transfer:{DRAWS}\tmodel\t0", f"transfer:{DRAWS}\tmodel\t501", "losses must be"),
        (f"transfer:{DRAWS}\t", "transfer:5000\t", "n must be at least"),
        (f"transfer:{DRAWS}\t", "certify\t", "p_lower must be"),
    ],
)
def test_forged_rows_are_refused(old, new, rule):
    transferred()
    text = Path("out.tsv").read_text()
    assert old in text
    Path("out.tsv").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=rule):
        rs.storage.certificate_rows.read_any(Path("out.tsv"))


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ({"source": TARGET}, "the classifier of its sidecar is"),
        ({"draws": 1001}, "--n must be 1 to 1,000"),
        ({"draws": 0}, "--n must be 1 to 1,000"),
    ],
)
def test_what_the_rows_are_not_of_is_refused_in_one_line(capfd, words, rule):
    capfd.readouterr()
    assert transferred(**words) == 2
    assert rule in capfd.readouterr().err.splitlines()[-1]
    assert not Path("out.tsv").exists()


def test_votes_that_a_row_rules_out_are_refused(capfd):
    """As where the sidecar is of a run with another seed."""
    capfd.readouterr()
    update_json(sidecar_of(Path("rows.tsv")), noise="gaussian", seed=1)
    assert transferred(target=SOURCE, draws=1000) == 2
    assert "must vote as its rows say" in capfd.readouterr().err
