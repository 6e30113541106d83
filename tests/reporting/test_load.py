"""What a study has on disk: ``rs.reporting.load``."""

import shutil

import numpy as np
import pandas as pd
import pytest

from rs.storage import certificate_rows
from rs.study.layout import GridCell
from tests.support.helpers import refuses, update_json
from tests.support.tiny_study import (
    CLASSES,
    ENSEMBLES,
    SIGMAS,
    N,
    make_study,
    read_study,
)

OTHER = f"ensembles/tiny/0.5/{ENSEMBLES[0]}"
COMMANDS = {"rows": "dvc repro certify_ensembles@tiny-0.5", "weights": "dvc repro weights@tiny-0.5"}


@pytest.fixture
def tiny(tmp_path):
    return make_study(tmp_path)


@pytest.fixture
def study(tiny):
    """The study, whose files are read when they are asked for."""
    return read_study(tiny)


def ensemble(study, slug):
    return {one.slug: one for one in study.ensembles}[slug]


def read_one(study, slug=ENSEMBLES[1]):
    return study.read_ensemble(ensemble(study, slug), 0.5)


def refused(read, *arguments):
    """The one line that says why."""
    with refuses() as caught:
        read(*arguments)
    return str(caught.value)


# -------------------------------------------------------------------------------------------------
# rows


@pytest.mark.parametrize("slug", ENSEMBLES)
def test_the_rows_of_an_ensemble_come_with_what_it_is(tiny, study, slug):
    found = read_one(study, slug)
    one = ensemble(study, slug)
    expected = certificate_rows.read_rows(tiny / f"results/0.5/pool/{slug}.tsv")
    pd.testing.assert_frame_equal(found.rows, expected)
    assert (found.sigma, found.subset, found.classes) == (0.5, "first-12", CLASSES)
    assert (found.ensemble, found.combination, found.members) == (one.name, one.key, one.members)
    assert found.sound == (one.combination.scope != "per-image")


def test_rows_of_another_scope_than_the_parameters_say_are_refused(study):
    del study.values["combinations"]["per-image"]["target"]
    study.values["combinations"]["per-image"]["scope"] = "global"
    message = refused(read_one, study)
    assert "must be of scope global, as the parameters say, got per-image" in message
    assert message.endswith(COMMANDS["rows"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n": N + 1}, "has n "),
        ({"scope": "model"}, "has scope per-image but its sidecar model"),
        ({"model": f"{OTHER}.json"}, f"but its sidecar says {OTHER}"),
        ({"subset": "first-13"}, "must be of the images first-13, as its sidecar says"),
    ],
)
def test_a_sidecar_of_other_rows_is_refused(tiny, study, change, word):
    update_json(tiny / f"results/0.5/pool/{ENSEMBLES[1]}.json", **change)
    assert word in refused(read_one, study)


def test_rows_and_sidecar_of_another_model_are_refused_under_this_name(tiny, study):
    for end in ("tsv", "json"):
        shutil.copy(tiny / f"results/0.5/gaussian-0.{end}", tiny / f"results/0.5/advmacer-0.{end}")
    message = refused(getattr, study, "groups")
    assert "advmacer-0.tsv must hold rows of tiny/0.5/advmacer/0" in message


MEMBER = {"method": "advmacer", "seed": 0, "classifier": "b" * 64}


@pytest.mark.parametrize(
    ("path", "change", "word"),
    [
        ("results/0.5/pool/advmacer-0.json", MEMBER, "must be of the same advmacer, seed 0"),
        (f"results/0.5/pool/{ENSEMBLES[1]}.json", {"members": [MEMBER]}, "model a+ and not b+"),
        (f"weights/0.5/{ENSEMBLES[1]}.json", {"members": [MEMBER]}, "model a+ and not b+"),
        (f"weights/0.5/{ENSEMBLES[1]}.tsv", {}, "must be the weights that the rows of advmacer"),
    ],
)
def test_rows_and_weights_of_different_trainings_are_refused(tiny, path, change, word):
    update_json(tiny / "results/0.5/advmacer-0.json", classifier="a" * 64)
    update_json(tiny / f"results/0.5/pool/{ENSEMBLES[1]}.json", weights="c" * 64)
    assert read_study(tiny).groups
    if not (tiny / path).exists():
        (tiny / path).write_text("{}")
    update_json(tiny / path, **change)
    with refuses(word):
        assert read_study(tiny).groups


def test_rows_of_another_noise_level_are_refused(tiny, study):
    for end in ("tsv", "json"):
        name = f"pool/{ENSEMBLES[1]}.{end}"
        (tiny / "results/0.25" / name).replace(tiny / "results/0.5" / name)
    assert "must be of sigma 0.5, but is not" in refused(read_one, study)


@pytest.mark.parametrize(
    ("path", "command"),
    [
        (f"pool/{ENSEMBLES[0]}.tsv", COMMANDS["rows"]),
        ("gaussian-0.tsv", "dvc repro certify@tiny-gaussian-0.5-0"),
    ],
)
def test_what_is_not_certified_yet_is_named_with_its_command(tiny, study, path, command):
    (tiny / "results/0.5" / path).unlink()
    message = refused(getattr, study, "groups")
    assert f"{path} must be a file" in message
    assert message.endswith(command)


# -------------------------------------------------------------------------------------------------
# logs


def test_the_error_of_the_best_acr_is_that_of_the_mean_over_seeds(tiny, study):
    logs = tiny / "logs/0.25/advmacer"
    (logs / "0/history.csv").write_text("epoch,acr\n2,0.2\n4,0.1\n")
    (logs / "1/history.csv").write_text("epoch,acr\n2,0.1\n4,0.3\n")
    best = study.read_best_acr().query("method == 'advmacer' and sigma == 0.25")
    # of the first seed 0.2 stays the best
    assert best["acr"].tolist() == pytest.approx([0.15, 0.25])
    assert best["seconds"].tolist() == [7.5, 15.0]  # 1.5 seconds an epoch, 2 and 3 times
    assert best["error"].tolist() == pytest.approx([0.05, 0.05])  # |a - b| / 2 of two seeds


def test_the_seconds_before_the_first_epoch_count_in_a_training_but_in_none_of_its_epochs(tiny):
    """By its log, or by what was measured of its method."""
    (tiny / "seconds.csv").write_text("method,seconds\ngaussian,5.0\nadvmacer,7.0\nmacer,6.0\n")
    cell = GridCell("tiny", "advmacer", 0.25, 0)
    log = cell.log(tiny / "logs", "timing.csv")
    log.write_text("epoch,seconds\n0,40.0\n1,42.0\n2,45.0\n")
    for measured, epochs in ((None, [2.0, 3.0]), (tiny / "seconds.csv", [7.0, 7.0])):
        found = read_study(tiny, epoch_seconds=measured)
        assert found.read_epoch_seconds(cell).tolist() == epochs
        assert found.read_model(cell).training_seconds == 40.0 + sum(epochs)


@pytest.mark.parametrize("bad", ["gaussian,0\n", "gaussian,inf\n", "other,1\n"])
def test_measured_seconds_must_be_positive_and_of_every_method(tiny, bad):
    measured = tiny / "seconds.csv"
    measured.write_text("method,seconds\n" + bad)
    found = read_study(tiny, epoch_seconds=measured)
    assert "positive seconds of every method" in refused(getattr, found, "groups")


# -------------------------------------------------------------------------------------------------
# theory


@pytest.mark.parametrize("name", ["spreads", "bounds"])
def test_the_theory_of_all_noise_levels_is_one_table_with_a_column_sigma(tiny, study, name):
    found = study.read_theory(name)
    levels = [pd.read_csv(tiny / f"weights/{sigma}/{name}.csv") for sigma in SIGMAS]
    assert found["sigma"].tolist() == list(np.repeat(SIGMAS, len(levels[0])))
    alone = pd.concat(levels, ignore_index=True)
    pd.testing.assert_frame_equal(found.drop(columns="sigma"), alone)


@pytest.mark.parametrize("text", [None, "", "ensemble\nx\n"])
def test_theory_that_is_missing_or_damaged_names_the_command_that_makes_it(tiny, study, text):
    path = tiny / "weights" / "0.5" / "spreads.csv"
    path.unlink() if text is None else path.write_text(text)
    message = refused(study.read_theory, "spreads")
    assert str(path) in message
    assert message.endswith(COMMANDS["weights"])


# -------------------------------------------------------------------------------------------------
# seconds


def test_seconds_are_by_kind_and_those_of_weights_chosen_by_the_image_come_on_top(study):
    """The study's times are 1.5, 2.5, ... in the order of its classifiers; 2 members x 0.25 s for
    the weights.
    """
    assert study.read_seconds(0.5) == {
        "advmacer x2": 4.5,
        "advmacer x2 (per-image)": 5.5 + 2 * 0.25,
        "gaussian x1 + advmacer x1": 6.5,
    }


def test_seconds_that_are_missing_are_not_known(tiny, study):
    (tiny / "logs/0.5/weights.csv").unlink()
    assert "advmacer x2 (per-image)" not in study.read_seconds(0.5)
    (tiny / "logs/0.5/alone.csv").unlink()
    assert study.read_seconds(0.5) == {}


@pytest.mark.parametrize(
    ("path", "command"), [("logs/0.5/alone.csv", "rows"), ("logs/0.5/weights.csv", "weights")]
)
def test_seconds_that_are_damaged_name_the_command_that_makes_them(tiny, study, path, command):
    (tiny / path).write_text("time\n1.0\n")
    message = refused(study.read_seconds, 0.5)
    assert str(tiny / path) in message
    assert message.endswith(f"{COMMANDS[command]} --force")
