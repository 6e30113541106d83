import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from helpers import Constant, Linear, smallnet, tiny_images
from torch import nn

from rs.artefacts import fingerprint
from rs.ensemble import (
    Ensemble,
    HardVote,
    KConsensus,
    LogitAverage,
    MaxMargin,
    Polytope,
    SoftmaxAverage,
)
from rs.errors import InputError
from rs.pool import CacheKey, Entry, OutputCache, certify_pool
from rs.rows import ABSTAIN
from rs.smoothing import SmoothedClassifier

SIGMA, N0, N, ALPHA = 0.5, 30, 330, 0.01
ENTRIES = {
    "first": Entry((0,)),
    "last": Entry((2,)),
    "average": Entry((0, 1, 2), SoftmaxAverage()),
    "weighted": Entry((2, 0), SoftmaxAverage([0.3, 0.7])),
    "logits": Entry((0, 1, 2), LogitAverage()),
    "vote": Entry((0, 1, 2), HardVote()),
    "mme": Entry((1, 2), MaxMargin()),
    "consensus": Entry((0, 1, 2), KConsensus(2)),
    "set": Entry((0, 1), Polytope([[0.3, 0.7], [0.7, 0.3]])),
}


def members():
    return [smallnet(seed) for seed in range(3)]


def image(index=0):
    return tiny_images().pixels(index)


def as_bytes(certificate):
    return {
        key: value.tobytes() if isinstance(value, np.ndarray) else repr(value)
        for key, value in asdict(certificate).items()
    }


def alone(entry, models, index=0, label=None, **settings):
    ensemble = Ensemble([models[number] for number in entry.members], entry.rule)
    classifier = SmoothedClassifier(ensemble, 2, SIGMA, undecided=ensemble.undecided, **settings)
    return classifier.certify(image(index), N0, N, ALPHA, seed=1, index=index, label=label)


def pool(models, entries=ENTRIES, index=0, **settings):
    return certify_pool(models, entries, 2, SIGMA, image(index), N0, N, ALPHA, seed=1, index=index, **settings)


@pytest.mark.parametrize("settings", [{}, {"batch": 100}, {"precision": "bfloat16"}], ids=str)
def test_a_pool_certifies_each_classifier_as_it_would_be_alone_byte_for_byte(settings):
    models = members()
    for index in (0, 7):
        made = pool(models, index=index, **settings)
        assert list(made) == list(ENTRIES)
        for name, entry in ENTRIES.items():
            assert as_bytes(made[name]) == as_bytes(alone(entry, models, index, **settings)), name


def test_the_classifiers_of_that_pool_are_not_all_one():
    made = pool(members())
    assert len({certificate.counts.tobytes() for certificate in made.values()}) >= 6


def test_an_entry_of_one_is_the_member_itself():
    models = members()
    for number in range(3):
        made = pool(models, {"one": Entry((number,))})["one"]
        itself = SmoothedClassifier(models[number], 2, SIGMA).certify(image(), N0, N, ALPHA, seed=1)
        assert as_bytes(made) == as_bytes(itself)


@pytest.mark.parametrize("label", [0, 1])
def test_the_shortcut_is_taken_by_the_entries_that_would_take_it_alone(label):
    models, taken = [*members(), Constant(0), Constant(1)], set()
    entries = {**ENTRIES, "zero": Entry((3,)), "one": Entry((4,))}
    made = pool(models, entries, label=label)
    for name, entry in entries.items():
        assert as_bytes(made[name]) == as_bytes(alone(entry, models, label=label)), name
        taken.add(made[name].mode)
    assert taken == {"certify", "shortcut"}


class Counting(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.images = base, 0

    def forward(self, x):
        self.images += len(x)
        return self.base(x)


def test_a_member_is_evaluated_once_on_each_draw_however_many_rules_use_it():
    models = [Counting(model) for model in members()]
    pool(models)
    assert [model.images for model in models] == [N0 + N] * 3


def test_members_that_no_entry_needs_any_more_are_not_evaluated():
    models = [Counting(Constant(0)), Counting(Constant(1)), Counting(Constant(0))]
    pool(models, {"zero": Entry((0,)), "one": Entry((1,))}, label=1)
    assert [model.images for model in models] == [N0, N0 + N, 0]
    pool(models, {"zero": Entry((0,))}, label=1)
    assert [model.images for model in models] == [2 * N0, N0 + N, 0]


def test_undecided_is_never_a_prediction_and_its_votes_are_kept():
    models = [Linear(0.4), Linear(0.6)]
    entries = {"set": Entry((0, 1), Polytope([[1, 0], [0, 1]])), "one": Entry((0,))}
    x = torch.full((1, 2, 2), 0.5)
    made = certify_pool(models, entries, 2, 0.05, x, N0, N, ALPHA)["set"]
    assert (made.predict, made.radius, made.p_lower) == (ABSTAIN, 0.0, 0.0)
    assert made.counts0.argmax() == 2
    assert (len(made.counts), made.counts.sum()) == (3, N)
    decided = certify_pool(models, entries, 2, 0.05, x + 0.3, N0, N, ALPHA)
    assert decided["set"].predict == 1
    assert 0 < decided["set"].radius <= decided["one"].radius


def test_members_come_back_in_the_mode_they_were_in():
    models = members()
    models[1].eval()
    pool(models)
    assert [model.training for model in models] == [True, False, True]


def test_a_member_that_is_not_a_number_is_refused_wherever_a_rule_uses_it():
    class Nan(nn.Module):
        def forward(self, x):
            return torch.full((len(x), 2), math.nan)

    models = [Constant(0), Constant(0), Nan()]
    for rule in (SoftmaxAverage(), HardVote(), KConsensus(2), Polytope([[1, 0, 0]])):
        with pytest.raises(InputError, match="numbers, got NaN"):
            pool(models, {"all": Entry((0, 1, 2), rule)})
    assert pool(models, {"two": Entry((0, 1))})["two"].predict == 0


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "at least one classifier to certify"),
        ({"far": Entry((3,))}, r"far must name members from 0 to 2, got \(3,\)"),
        ({"back": Entry((-1,))}, "back must name members from 0 to 2"),
        ({"none": Entry(())}, "none must name members from 0 to 2"),
        ({"heavy": Entry((0, 1), SoftmaxAverage([1.0]))}, "one weight for each member, got 1 for 2"),
    ],
)
def test_entries_of_other_members_are_refused_before_any_is_evaluated(entries, message):
    models = [Counting(Constant(0))] * 3
    with pytest.raises(ValueError, match=message):
        pool(models, entries)
    assert models[0].images == 0


def test_a_pool_refuses_what_certify_refuses():
    for changed in ({"sigma": 0.0}, {"n": 0}, {"n0": 0}, {"alpha": 1.0}, {"x": torch.zeros(2, 2)}, {"num_classes": 1}):
        settings = {"num_classes": 2, "sigma": SIGMA, "x": image(), "n0": N0, "n": N, "alpha": ALPHA, **changed}
        with pytest.raises(InputError):
            certify_pool(members(), ENTRIES, **settings)


# --- The cache of outputs


class Rounded(nn.Module):
    """A member whose logits are rounded to float16: representable exactly."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x).half().float()


def key_of(models, indices=(0, 7), **changes):
    key = CacheKey(
        members=[fingerprint(model) for model in models],
        images=tiny_images().fingerprint,
        indices=list(indices),
        num_classes=2,
        sigma=SIGMA,
        n0=N0,
        n=N,
        seed=1,
        precision="float32",
        device="cpu",
    )
    return replace(key, **changes)


def filled(folder, models, indices=(0, 7)):
    cache = OutputCache(folder, key_of(models, indices))
    for index in indices:
        cache.fill(models, image(index), index)
    return cache


def test_certificates_from_a_cache_are_those_of_the_pool_where_float16_is_exact(tmp_path, monkeypatch):
    models = [Rounded(model) for model in members()]
    cache = filled(tmp_path, models)
    for read in (7, 4096):
        monkeypatch.setattr("rs.pool.READ", read)
        for index in (7, 0):
            made, expected = cache.certify(ENTRIES, index, ALPHA), pool(models, index=index)
            assert {n: as_bytes(c) for n, c in made.items()} == {n: as_bytes(c) for n, c in expected.items()}


def test_cached_logits_are_within_half_a_unit_of_float16_and_agree_where_classes_are_further_apart(tmp_path):
    models = members()
    cache = filled(tmp_path, models)
    logits = []
    exact = SmoothedClassifier(models[0], 2, SIGMA)
    exact.visit(lambda out, draws: logits.append(out), image(7), N0, 1, 4, 7)
    direct, stored = torch.cat(logits).numpy(), np.load(tmp_path / "0.npy")[1, :N0]
    assert (np.abs(stored - direct) <= np.spacing(np.abs(direct).astype(np.float16)) / 2 * (1 + 1e-6)).all()
    apart = np.abs(direct[:, 0] - direct[:, 1]) > np.spacing(np.abs(direct).max(axis=1).astype(np.float16)) * 2
    assert (stored.argmax(axis=1) == direct.argmax(axis=1))[apart].all()
    assert apart.mean() > 0.9
    one = cache.certify({"one": Entry((0,))}, 7, ALPHA)["one"]
    assert abs(int(one.counts0[0]) - int((direct.argmax(axis=1) == 0).sum())) <= (~apart).sum()


def test_a_cache_takes_the_shortcut_as_a_pool_does(tmp_path):
    models = [Rounded(model) for model in members()] + [Constant(0), Constant(1)]
    entries = {**ENTRIES, "zero": Entry((3,)), "one": Entry((4,))}
    made = filled(tmp_path, models).certify(entries, 0, ALPHA, label=1)
    expected = pool(models, entries, label=1)
    assert {n: as_bytes(c) for n, c in made.items()} == {n: as_bytes(c) for n, c in expected.items()}
    assert {c.mode for c in made.values()} == {"certify", "shortcut"}


def test_the_size_of_a_cache_is_known_beforehand(tmp_path):
    filled(tmp_path, members())
    stored = sum(np.load(tmp_path / f"{number}.npy", mmap_mode="r").nbytes for number in range(3))
    assert stored == OutputCache.size(3, 2, N0 + N, 2) == 3 * 2 * (N0 + N) * 2 * 2


def test_a_cache_is_found_again_and_what_is_in_it_is_not_computed_again(tmp_path):
    first = [Counting(Rounded(model)) for model in members()]
    expected = filled(tmp_path, first).certify(ENTRIES, 0, ALPHA)
    evaluated = [model.images for model in first]
    again = filled(tmp_path, first)
    assert [model.images for model in first] == evaluated == [2 * (N0 + N)] * 3
    assert as_bytes(again.certify(ENTRIES, 0, ALPHA)["mme"]) == as_bytes(expected["mme"])


def test_an_image_that_is_not_in_a_cache_is_refused(tmp_path):
    models = members()
    cache = OutputCache(tmp_path, key_of(models))
    cache.fill(models, image(0), 0)
    with pytest.raises(InputError, match=r"image 7 must be in .* before it is certified"):
        cache.certify(ENTRIES, 7, ALPHA)
    for use in (lambda: cache.certify(ENTRIES, 3, ALPHA), lambda: cache.fill(models, image(3), 3)):
        with pytest.raises(InputError, match="image 3 must be one of those"):
            use()


def test_an_image_whose_filling_failed_is_not_in_the_cache(tmp_path):
    class FailsLater(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls > 1:
                raise RuntimeError("broken")
            return torch.zeros(len(x), 2)

    models = [FailsLater()]
    cache = OutputCache(tmp_path, key_of(models))
    with pytest.raises(RuntimeError, match="broken"):
        cache.fill(models, image(0), 0)
    with pytest.raises(InputError, match="before it is certified"):
        cache.certify({"one": Entry((0,))}, 0, ALPHA)


@pytest.mark.parametrize(
    "changes",
    [{"sigma": 0.25}, {"seed": 2}, {"n": N + 1}, {"indices": [0]}, {"images": "x"}, {"members": ["x"]}],
    ids=str,
)
def test_a_cache_of_anything_else_is_refused(tmp_path, changes):
    models = members()
    OutputCache(tmp_path, key_of(models))
    with pytest.raises(InputError, match="must hold outputs of the same members and draws"):
        OutputCache(tmp_path, key_of(models, **changes))


def test_a_cache_refuses_other_members_and_logits_that_float16_does_not_hold(tmp_path):
    models = members()
    for number, key in enumerate((key_of(models[::-1]), key_of(models, device="cuda"))):
        with pytest.raises(InputError, match="members and device must be those"):
            OutputCache(tmp_path / str(number), key).fill(models, image(0), 0)
    large = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    nn.init.constant_(large[1].weight, 1e6)
    with pytest.raises(InputError, match="fit into float16"):
        OutputCache(tmp_path / "b", key_of([large])).fill([large], image(0), 0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(InputError, match=r"must have shape \(30, 2\) .* got \(30, 3\)"):
        OutputCache(tmp_path / "c", key_of([wide])).fill([wide], image(0), 0)
