"""Ensembles on disk: ``rs.ensemble_card`` and the command ``ensemble``."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from helpers import CLASSES, ROOT, SHAPE, python, smallnet, tiny_params, write_params, write_tiny
from hypothesis import given
from hypothesis import strategies as st

from rs import artefacts, code, rows
from rs.certify_cell import certification_settings, certify_cell
from rs.ensemble import RULES, Ensemble, HardVote, KConsensus, LogitAverage, MaxMargin, SoftmaxAverage
from rs.ensemble_card import SCOPES, EnsembleCard, Member, canonical_name, load, members_named, read
from rs.errors import InputError
from rs.methods import METHODS
from stages.certify import main as certify
from stages.ensemble import main
from stages.shell import run

CPU = torch.device("cpu")
GRID = {
    "sigmas": [0.25, 0.5],
    "methods": ["gaussian", "macer"],
    "seeds": [4, 0],
    "members": ["macer"],
    "member_seeds": [1, 2],
}
PLACES = [(method, seed) for method in ("gaussian", "macer") for seed in (0, 1, 2, 4)]


def save_model(folder, method="macer", seed=0, **changes):
    """An untrained model, different for every method and seed."""
    card = artefacts.Card(
        architecture="smallnet",
        shape=list(SHAPE),
        classes=list(CLASSES),
        mean=[0.5],
        std=[0.25],
        dataset="tiny",
        method=method,
        hyperparameters={},
        training={},
        sigma=0.25,
        seed=seed,
        epochs=1,
        device="cpu",
        versions=artefacts.versions(),
    )
    card = replace(card, **changes)
    artefacts.save(folder, card.build(PLACES.index((method, seed))), card)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch, work):
    """Models of two methods, parameters and data in the current folder."""
    monkeypatch.chdir(tmp_path)
    for method, seed in PLACES:
        if (method, seed) != ("gaussian", 1):
            save_model(Path("models", method, str(seed)), method, seed)
    values = json.loads(write_params(Path("params.yaml")).read_text())
    Path("params.yaml").write_text(json.dumps(values | GRID))
    write_tiny(Path("data"))


def member(method="macer", seed=0):
    path = f"models/{method}/{seed}"
    return Member(path=path, method=method, seed=seed, classifier=artefacts.fingerprint(artefacts.load(Path(path))[0]))


def card(rule="softmax", members=None, **changes):
    values = {
        "name": "macer x3",
        "dataset": "tiny",
        "sigma": 0.25,
        "members": members or [member(seed=seed) for seed in (0, 1, 2)],
        "rule": rule,
        "weights": None,
        "consensus": None,
        "scope": SCOPES.get(rule, "global"),
    }
    return EnsembleCard(**{**values, **changes})


def written(made, path="ensemble.json"):
    made.write(Path(path))
    return Path(path)


def certified(model, out):
    certify_cell(
        str(model),
        Path("data"),
        certification_settings(tiny_params(), "tiny"),
        sigma=None,
        device=CPU,
        batch=None,
        out=Path(out),
    )
    return Path(out)


# ------------------------------------------------------------------------------------------------- the file

MADE = {
    "softmax": ({}, SoftmaxAverage()),
    "softmax, weights": ({"weights": [0.2, 0.3, 0.5]}, SoftmaxAverage([0.2, 0.3, 0.5])),
    "logits, weights": ({"weights": [0.7, 0.0, 0.3]}, LogitAverage([0.7, 0.0, 0.3])),
    "vote": ({}, HardVote()),
    "mme": ({}, MaxMargin()),
    "consensus": ({"consensus": 2}, KConsensus(2)),
}


@pytest.mark.parametrize("named", MADE)
def test_an_ensemble_comes_back_as_it_was_written(named):
    made = card(named.partition(",")[0], **MADE[named][0])
    path = written(made)
    assert read(path) == made
    assert written(read(path), "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("named", MADE)
def test_a_loaded_ensemble_is_the_one_built_by_hand(named):
    changes, rule = MADE[named]
    path = written(card(named.partition(",")[0], **changes))
    by_hand = Ensemble([artefacts.load(Path("models/macer", seed))[0] for seed in "012"], rule).eval()
    loaded, own, classes, shape = load(path)
    x = torch.randn(50, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded(x), by_hand(x))
    assert not any(module.training for module in loaded.modules())
    assert artefacts.fingerprint(loaded) == artefacts.fingerprint(by_hand)
    assert (own, classes, shape) == (read(path), list(CLASSES), list(SHAPE))


def test_rule_weights_and_order_of_members_are_part_of_what_a_classifier_is():
    some = [card(**changes) for _, (changes, _) in list(MADE.items())[:2]]
    some += [card("vote"), card("mme"), card("consensus", consensus=1), card("consensus", consensus=2)]
    some += [card(members=[member(seed=seed) for seed in (2, 1, 0)])]
    prints = {artefacts.fingerprint(load(written(made))[0]) for made in some}
    assert len(prints) == len(some)


@pytest.mark.parametrize("rule", ["softmax", "logits", "vote", "mme", "consensus"])
def test_an_ensemble_of_one_has_the_rows_of_its_member(rule):
    one = card(rule, members=[member()], consensus=1 if rule == "consensus" else None)
    ensemble = certified(written(one), "ensemble.tsv")
    alone = certified("models/macer/0", "alone.tsv")
    assert ensemble.read_bytes() == alone.read_bytes()
    assert set(rows.read(ensemble)["sigma"]) == {0.25}


def test_every_rule_has_a_scope_and_it_is_a_sound_one():
    assert set(SCOPES) == set(RULES)
    assert {rule for rule, scope in SCOPES.items() if scope != "global"} == {"mme", "consensus"}
    assert set(SCOPES.values()) == {"global", "noisy-input"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "magic"}, "rule must be one of softmax, logits, vote, mme, consensus; got 'magic'"),
        ({"members": []}, "at least one member"),
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"sigma": float("nan")}, "sigma must be positive and finite, got nan"),
        ({"scope": "per-image"}, "scope of the rule softmax must be global, got 'per-image'"),
        ({"scope": "set"}, "scope of the rule softmax must be global, got 'set'"),
        ({"scope": "noisy-input"}, "must be global, got 'noisy-input'"),
        ({"rule": "mme"}, "scope of the rule mme must be noisy-input, got 'global'"),
        ({"weights": [0.5, 0.5]}, "one weight for each member, got 2 for 3"),
        ({"weights": [0.5, 0.5, 0.5]}, "sum to 1"),
        ({"weights": [1.5, -0.5, 0.0]}, "at least 0"),
        ({"weights": [float("nan")] * 3}, "sum to 1"),
        ({"weights": []}, "sum to 1"),
        ({"rule": "vote", "weights": [0.2, 0.3, 0.5]}, "rules softmax, logits, got vote"),
        ({"consensus": 2}, "rule consensus, and no other, .* got consensus 2 for softmax"),
        ({"rule": "consensus", "scope": "noisy-input"}, "got consensus None for consensus"),
        ({"rule": "consensus", "scope": "noisy-input", "consensus": 4}, "at most the number of members, 3, got 4"),
        ({"rule": "consensus", "scope": "noisy-input", "consensus": 0}, "k must be at least 1, got 0"),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused_built_or_read(changes, message):
    good = card()
    with pytest.raises(InputError, match=message):
        replace(good, **changes)
    Path("bad.json").write_text(json.dumps({**asdict(good), **changes}))
    with pytest.raises(InputError, match=rf"bad\.json must be an ensemble, but: .*{message}.*; make it with python -m"):
        read(Path("bad.json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.pop("rule"), "rule is missing"),
        (lambda values: values["members"][1].pop("seed"), r"members\.1\.seed is missing"),
        (lambda values: values.update(colour="red"), "colour is not a known key"),
        (lambda values: values["members"][0].update(sha=1), r"members\.0\.sha is not a known key"),
        (lambda values: values.update(sigma="0.25"), "sigma: Input should be a valid number"),
        (lambda values: values.update(weights=["a", 1, 2]), r"weights\.0: Input should be a valid number"),
        (lambda values: values.update(members={}), "members: Input should be a valid "),
        (lambda values: values["members"][0].update(seed="0"), r"members\.0\.seed: Input should be a valid integer"),
    ],
)
def test_keys_that_are_missing_unknown_or_of_another_kind_are_named(change, message):
    values = asdict(card())
    change(values)
    Path("bad.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=rf"bad\.json must be an ensemble, but: {message}"):
        load(Path("bad.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("[]", "must be an ensemble, but"), ("3", "must be an ensemble, but"), ("{", "must hold JSON")],
)
def test_a_file_of_something_else_is_refused(text, message):
    Path("bad.json").write_text(text)
    with pytest.raises(InputError, match=rf"bad\.json {message}"):
        read(Path("bad.json"))


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"none\.json must be a file, but there is none"):
        load(Path("none.json"))


def test_the_card_of_a_model_is_not_an_ensemble():
    with pytest.raises(InputError, match=r"must be an ensemble, but: .*rule is missing"):
        load(Path("models/macer/0/model.json"))


def test_an_ensemble_is_named_as_what_it_is():
    with pytest.raises(InputError, match=r"must be named \*\.json, got ensemble\.txt"):
        card().write(Path("ensemble.txt"))
    assert not Path("ensemble.txt").exists()


def test_a_member_that_changed_is_refused():
    path = written(card())
    artefacts.save(Path("models/macer/1"), smallnet(99), artefacts.read_card(Path("models/macer/1")))
    with pytest.raises(
        InputError, match=r"models/macer/1 must be the model .* but it changed; make ensemble\.json again"
    ):
        load(path)


def test_a_member_that_is_gone_is_refused():
    path = written(card())
    Path("models/macer/1/model.json").unlink()
    with pytest.raises(InputError, match=r"models/macer/1/model\.json must be a file"):
        load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "other"}, "models/macer/1 must have the dataset tiny in this ensemble, but has other"),
        ({"sigma": 0.5}, r"models/macer/1 must have the sigma 0\.25 .* but has 0\.5"),
        ({"classes": ["right", "left"]}, r"models/macer/1 must have the classes \['left', 'right'\]"),
        ({"method": "gaussian"}, "models/macer/1 must have the method macer"),
        ({"seed": 7}, "models/macer/1 must have the seed 1 .* but has 7"),
        ({"shape": [1, 3, 3]}, r"models/macer/1 must have the shape \[1, 4, 4\] .* but has \[1, 3, 3\]"),
    ],
)
def test_members_that_disagree_are_refused(change, message):
    """The weights of the network fit 4x4 and 3x3 images alike, as both pool to one feature map of 1x1."""
    model, own = artefacts.load(Path("models/macer/1"))
    artefacts.save(Path("models/macer/1"), model, replace(own, **change))
    with pytest.raises(InputError, match=message):
        load(written(card()))


# ------------------------------------------------------------------------------------------------- names


@given(st.dictionaries(st.sampled_from(list(METHODS)), st.integers(1, 99), min_size=1))
def test_a_name_says_its_members_in_their_order(counts):
    assert list(members_named(canonical_name(counts)).items()) == list(counts.items())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "advmacer",
        "advmacer x0",
        "advmacer x01",
        "advmacer x-1",
        "advmacer x1.5",
        "advmacer x٣",
        "advmacer 3",
        "x3",
        "3x advmacer",
        "advmacer x3 +",
        "+ advmacer x3",
        "advmacer x1 + advmacer x2",
        "advmacer x1, macer x2",
        "advmacer x1 macer x2",
    ],
)
def test_other_names_are_refused(text):
    with pytest.raises(InputError, match=r"must be named like 'advmacer x1 \+ smoothadv x2', each method once"):
        members_named(text)


def test_a_name_of_an_unknown_method_is_refused():
    with pytest.raises(InputError, match=r"must be among gaussian, .*advmacer; got 'magic'"):
        members_named("macer x1 + magic x2")


# ------------------------------------------------------------------------------------------------- the command


def words(name="macer x2", **options):
    chosen = {"dataset": "tiny", "sigma": 0.25, "models": "models", "out": "ensembles/made.json", **options}
    return [name, *(str(word) for key, value in chosen.items() for word in (f"--{key}", value))]


def command(*arguments, of=main):
    with pytest.raises(SystemExit) as caught:
        run(of, arguments=arguments)
    return caught.value.code


def test_the_members_are_the_first_seeds_in_the_order_of_the_parameters():
    assert command(*words("macer x3 +  gaussian x1", weights="0.1,0.2,0.3,0.4")) == 0
    made = read(Path("ensembles/made.json"))
    assert [(one.method, one.seed) for one in made.members] == [
        ("macer", 4),
        ("macer", 0),
        ("macer", 1),
        ("gaussian", 4),
    ]
    assert [one.path for one in made.members][2:] == ["models/macer/1", "models/gaussian/4"]
    assert made.members[1] == member("macer", 0)
    expected = ("macer x3 + gaussian x1", "tiny", 0.25, "softmax", [0.1, 0.2, 0.3, 0.4], None, "global")
    assert (made.name, made.dataset, made.sigma, made.rule, made.weights, made.consensus, made.scope) == expected


def test_an_ensemble_made_by_the_command_certifies_like_any_model():
    assert command(*words(rule="consensus", consensus=2)) == 0
    arguments = ["ensembles/made.json", "--dataset", "tiny", "--data", "data", "--out", "rows.tsv", "--device", "cpu"]
    assert command(*arguments, of=certify) == 0
    sidecar = json.loads(Path("rows.json").read_text())
    assert sidecar["model"] == "ensembles/made.json"
    assert sidecar["classifier"] == artefacts.fingerprint(load(Path("ensembles/made.json"))[0])
    assert len(rows.read(Path("rows.tsv"))) == 10


def test_made_twice_an_ensemble_has_the_same_bytes():
    for name in ("one", "two"):
        assert command(*words(rule="mme", out=f"{name}.json")) == 0
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()
    assert read(Path("one.json")).scope == "noisy-input"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("macer", {}, "must be named like"),
        ("magic x1", {}, "must be among"),
        ("gaussian x3", {}, "must declare seeds of gaussian for 3 member(s), but declare 2"),
        ("advmacer x1", {}, "must declare seeds of advmacer for 1 member(s), but declare 0"),
        ("macer x5", {}, "must declare seeds of macer for 5 member(s), but declare 4"),
        ("macer x2", {"sigma": 0.75}, "sigma must be one of the sigmas of the parameters, 0.25, 0.5; got 0.75"),
        ("macer x2", {"sigma": 0.5}, "models/macer/4 must have the sigma 0.5"),
        ("macer x2", {"dataset": "huge"}, "recipes.huge"),
        ("macer x2", {"params": "nowhere.yaml"}, "nowhere.yaml"),
        ("macer x2", {"out": "made.txt"}, "must be named *.json"),
        ("macer x2", {"rule": "magic"}, "rule must be one of"),
        ("macer x2", {"weights": "0.5;0.5"}, "--weights must be numbers with commas between them, got '0.5;0.5'"),
        ("macer x2", {"weights": ""}, "--weights must be numbers"),
        ("macer x2", {"weights": "0.5,0.6"}, "sum to 1"),
        ("macer x2", {"weights": "1"}, "one weight for each member, got 1 for 2"),
        ("macer x2", {"weights": "nan,nan"}, "sum to 1"),
        ("macer x2", {"weights": "0.5,0.5", "rule": "mme"}, "weights must come with"),
        ("macer x2", {"consensus": 2}, "got consensus 2 for softmax"),
        ("macer x2", {"rule": "consensus", "consensus": 3}, "at most the number of members, 2, got 3"),
        (
            "macer x3 + gaussian x2",
            {"models": "other"},
            "other lacks 5; dvc repro train@tiny-macer-0.25-4 train@tiny-macer-0.25-0 train_members@tiny-macer-0.25-1 "
            "train@tiny-gaussian-0.25-4 train@tiny-gaussian-0.25-0",
        ),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path, capfd, name, options, message):
    before = sorted(tmp_path.rglob("*"))
    assert command(*words(name, **options)) == 2
    out, err = capfd.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith("error: ")
    assert message in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("change", [{"dataset": "other"}, {"classes": ["right", "left"]}, {"seed": 5}])
def test_models_that_disagree_make_no_ensemble(capfd, change):
    model, own = artefacts.load(Path("models/macer/0"))
    artefacts.save(Path("models/macer/0"), model, replace(own, **change))
    assert command(*words()) == 2
    (key,) = change
    assert f"models/macer/0 must have the {key}" in capfd.readouterr().err
    assert not Path("ensembles").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigmas": None}, "sigmas"),
        ({"seeds": ["4", 0]}, "seeds.0: "),
        ({"methods": "macer"}, "methods: "),
        (
            {"members": None, "member_seeds": None, "seeds": [0]},
            "must declare seeds of macer for 2 member(s), but declare 1",
        ),
    ],
)
def test_a_grid_that_is_none_is_refused(capfd, change, message):
    values = json.loads(Path("params.yaml").read_text())
    Path("params.yaml").write_text(json.dumps(values | change))
    assert command(*words()) == 2
    assert message in capfd.readouterr().err


def test_help_comes_without_importing_torch():
    script = (
        "import runpy, sys; sys.argv = ['stages.ensemble', '--help']\n"
        "try: runpy.run_module('stages.ensemble', run_name='__main__')\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, sorted({'torch', 'torchvision', 'sklearn', 'matplotlib', 'pandas', 'scipy'} & set(sys.modules)))"
    )
    made = python("-c", script)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1] == "0 []"
    assert "--consensus" in made.stdout


def test_the_methods_are_no_part_of_what_certificates_are_made_by():
    """A new method, or an edit of one, must not certify every model again."""
    modules = code.closure(ROOT, Path("stages/certify.py"))
    assert Path("rs/ensemble_card.py") in modules
    assert not [module for module in modules if module.parent == Path("rs/methods")]
