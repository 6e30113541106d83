"""The page of a model that is shared, as the Hugging Face hub reads it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard as HubCard

from rs.command_line.share import write_card as card_command
from rs.command_line.shell import run
from rs.models import checkpoint, model_card
from rs.models.fingerprint import model_fingerprint
from rs.reporting.summaries import summarize_rows
from rs.storage.certificate_rows import read_rows, sidecar_of, write_field_log
from tests.support import untrained
from tests.support.helpers import smallnet
from tests.support.tiny_study import make_rows, write_rows

CARD = replace(untrained.CARD, method="gaussian", epochs=2, versions={"torch": "2.14"})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checkpoint.save(tmp_path / "model", smallnet(), CARD)
    return tmp_path / "model"


@pytest.fixture
def rows(folder):
    write_rows(make_rows(0.25, 0), Path("rows.tsv"))
    sidecar = json.loads(sidecar_of(Path("rows.tsv")).read_text())
    sidecar |= {"classifier": model_fingerprint(smallnet()), "dataset": "photos"}
    sidecar_of(Path("rows.tsv")).write_text(json.dumps(sidecar))
    return Path("rows.tsv")


def written(capfd, *words):
    with pytest.raises(SystemExit) as end:
        run(card_command, arguments=list(map(str, words)))
    out, err = capfd.readouterr()
    assert out.startswith(f"page of {words[0]}, ") or end.value.code != 0
    return end.value.code, err


def test_the_hub_reads_the_numbers_of_the_page(capfd, folder, rows):
    assert written(capfd, folder, "--rows", rows, "--out", "README.md") == (0, "")
    page, about = HubCard.load("README.md"), summarize_rows(rows)
    assert (page.data.library_name, page.data.pipeline_tag) == ("rs", "image-classification")
    found = {result.metric_name: result.metric_value for result in page.data.eval_results}
    at = {f"certified accuracy at {radius}": share for radius, share in about["certified_accuracy"].items()}
    assert at.pop("certified accuracy at 0") == about["clean_accuracy"]
    assert found == {"ACR": about["acr"], "clean accuracy": about["clean_accuracy"], **at}
    assert {result.dataset_name for result in page.data.eval_results} == {"photos"}  # not that of the training
    assert f"| ACR | {about['acr']:.3f} ± {about['standard_error']:.3f} |" in page.text
    assert "gaussian, sigma 0.25 in pixels of [0, 1], 2 epochs, seed 0" in page.text


def stated(rows, **how):
    """What the page is told of rows whose sidecar says more."""
    sidecar_of(rows).write_text(json.dumps(json.loads(sidecar_of(rows).read_text()) | how))
    return summarize_rows(rows)


def test_the_page_says_which_network_was_certified_and_how(rows):
    how = {"engine": "quantized", "precision": "int8", "noise": "grid", "arithmetic": "portable", "device": "cpu"}
    page = HubCard(model_card.model_page(CARD, [stated(rows, **how)]))
    said = "engine quantized, precision int8, noise grid, arithmetic portable, outputs as computed, device cpu"
    assert f"Certified with {said}." in page.text
    assert {result.dataset_config.endswith(said) for result in page.data.eval_results} == {True}
    assert "with engine quantized, precision int8 are of another network than the one in float32" in page.text


@pytest.mark.parametrize(
    ("engine", "precision", "other"), [("compiled", "bfloat16", True), ("folded", "float32", False)]
)
def test_networks_in_other_precisions_are_others_and_those_of_other_engines_are_not(rows, engine, precision, other):
    page = model_card.model_page(CARD, [stated(rows, engine=engine, precision=precision)])
    assert f"Certified with engine {engine}, precision {precision}, noise gaussian" in page
    assert (f"engine {engine}, precision {precision} are of another network" in page) == other


@pytest.mark.parametrize(("mode", "said"), [("certify", ""), ("acr-error:0.01:60", ", mode acr-error:0.01:60")])
def test_the_page_says_that_rows_stopped_early(rows, mode, said):
    about = summarize_rows(rows) | {"mode": mode}
    page = HubCard(model_card.model_page(CARD, [about]))
    assert f"alpha {about['alpha']}, {about['subset']}{said}\n" in page.text
    assert {f"{about['subset']}{said}, " in result.dataset_config for result in page.data.eval_results} == {True}


def test_without_rows_a_page_has_no_numbers():
    page = model_card.model_page(CARD)
    assert page.startswith(model_card.BEGINNING)
    assert HubCard(page).data.eval_results is None
    assert re.search(r"\d%|ACR", page) is None
    assert "..., " not in model_card.model_page(replace(CARD, classes=[str(k) for k in range(100)])).splitlines()[-1]


def test_rows_of_another_model_are_refused(capfd, folder, rows):
    checkpoint.save(Path("other"), smallnet(1), CARD)
    code, err = written(capfd, "other", "--rows", rows, "--out", "README.md")
    assert (code, Path("README.md").exists()) == (2, False)
    assert "must be rows of other" in err


def test_a_log_in_six_columns_is_of_no_model(capfd, folder, rows):
    write_field_log(read_rows(rows), Path("theirs.log"))
    code, err = written(capfd, folder, "--rows", "theirs.log", "--out", "README.md")
    assert (code, Path("README.md").exists()) == (2, False)
    assert "theirs.log must be" in err


def test_a_page_replaces_what_is_there_by_force_alone(capfd, folder):
    Path("README.md").write_text("a page of one's own")
    assert written(capfd, folder, "--out", "README.md")[0] == 2
    assert Path("README.md").read_text() == "a page of one's own"
    assert written(capfd, folder, "--out", "README.md", "--force")[0] == 0
