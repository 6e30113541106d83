"""The file of an ensemble: ``rs.ensemble.spec``."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from rs.data import images
from rs.ensemble.base import Ensemble
from rs.ensemble.spec import load_ensemble, load_members, read
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from tests.support.combinations import EQUAL, GOOD
from tests.support.ensemble_specs import (
    GLOBAL,
    MADE,
    PER_IMAGE,
    fitted,
    made,
    member,
    network,
    spec,
    written,
)
from tests.support.helpers import CLASSES, SHAPE, refuses, smallnet, write_tiny

pytestmark = pytest.mark.usefixtures("models_here")
# -------------------------------------------------------------------------------------------------
# the file


@pytest.mark.parametrize("named", MADE)
def test_a_loaded_ensemble_is_the_one_built_by_hand(named):
    path = written(made(named))
    members = [network(f"models/macer/{seed}") for seed in (0, 1, 2)]
    by_hand = Ensemble(members, MADE[named][-1]).eval()
    loaded, own, classes, shape = load_ensemble(path)
    x = torch.randn(50, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded(x), by_hand(x))
    assert not any(module.training for module in loaded.modules())
    assert model_fingerprint(loaded) == model_fingerprint(by_hand)
    assert (own, classes, shape) == (read(path), list(CLASSES), list(SHAPE))


def test_rule_weights_and_order_of_members_are_part_of_what_a_classifier_is():
    some = [made(named) for named in MADE]
    some += [made("consensus", agree=1), spec(fitted=fitted(0.75, 0.25, 0.0), **GLOBAL)]
    some += [spec(members=[member(seed=seed) for seed in (2, 1, 0)])]
    assert len({model_fingerprint(load_ensemble(written(one))[0]) for one in some}) == len(some)


# -------------------------------------------------------------------------------------------------
# parts that fit

THREE = {
    "weights": [0.2, 0.3, 0.5],
    "split": "train",
    "images": 20,
    "used_share": 0.75,
    "shrinkage": 0.0,
}


@pytest.mark.parametrize(
    ("combination", "changes", "message"),
    [
        (EQUAL, {"members": []}, "members.* at least 1 item"),
        (PER_IMAGE, {"fitted": THREE}, "fitted weights must come with weights of scope global"),
        (
            GLOBAL,
            {"fitted": THREE | {"weights": [0.5, 0.5, 0.5]}},
            "weights must be at least 0 and sum to 1",
        ),
        (GOOD["consensus"] | {"agree": 4}, {}, "at most the number of members, 3"),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused(combination, changes, message):
    values = asdict(spec()) | changes
    values["declaration"]["combination"] = combination
    Path("bad.json").write_text(json.dumps(values))
    with refuses(rf"bad\.json must be an ensemble, but: .*{message}.*; make it with rs combine"):
        read(Path("bad.json"))


# -------------------------------------------------------------------------------------------------
# one classifier


@pytest.mark.parametrize("combination", [GLOBAL, PER_IMAGE])
def test_weights_that_are_not_solved_for_all_images_are_no_classifier(combination):
    with refuses("macer-0-1-2.some must have weights for all images"):
        load_ensemble(written(spec(**combination)))


# -------------------------------------------------------------------------------------------------
# its members


def test_a_member_that_changed_is_refused():
    path = written(spec())
    checkpoint.save(
        Path("models/macer/1"), smallnet(99), checkpoint.read_card(Path("models/macer/1"))
    )
    with refuses("models/macer/1 must be the model .* but it has changed"):
        load_ensemble(path)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("classes", ["right", "left"], ["left", "right"]),
        ("seed", 7, 1),
        ("bounds", (-1.0, 1.0), (0.0, 1.0)),
        ("shape", [1, 3, 3], [1, 4, 4]),
    ],
)
def test_members_that_disagree_are_refused(key, value, expected):
    """The weights of the network fit 4x4 and 3x3 images alike, as both pool to one feature map of
    1x1.
    """
    model, own = checkpoint.load_model(Path("models/macer/1"))
    checkpoint.save(Path("models/macer/1"), model, replace(own, **{key: value}))
    must = f"models/macer/1 must have the {key} {expected} in this ensemble, but has {value};"
    with refuses(re.escape(must)):
        load_ensemble(written(spec()))


def test_members_come_in_their_order_and_must_be_classifiers_of_the_images():
    members = [member(seed=2), member(seed=0)]
    meta = images.load_images(write_tiny(Path("data")), "test").meta
    models, cards = load_members(members, "tiny", 0.25, Path("pool.json"), meta)
    assert [model_fingerprint(model) for model in models] == [one.classifier for one in members]
    assert [own.seed for own in cards] == [2, 0]
    for change in ({"classes": ("right", "left")}, {"shape": (1, 4, 3)}):
        with refuses(r"pool\.json must be of classifiers of tiny .*but they are of tiny"):
            load_members(members, "tiny", 0.25, Path("pool.json"), replace(meta, **change))
