import os
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rs.ensemble.logit_cache import CacheKey, OutputCache
from rs.ensemble.pool import MemberLogits, PoolEntry
from rs.errors import InputError
from rs.models.fingerprint import model_fingerprint
from rs.smoothing.classifier import SmoothedClassifier
from tests.support.helpers import Constant, tiny_images
from tests.support.small_pool import ALPHA, ENTRIES, N0, SIGMA, Counting, N, Rounded, as_bytes, image, members, pool


def key_of(models, indices=(0, 7), **changes):
    key = CacheKey(
        members=[model_fingerprint(model) for model in models],
        images=tiny_images().fingerprint,
        indices=list(indices),
        num_classes=2,
        sigma=SIGMA,
        n0=N0,
        n=N,
        seed=1,
        noise="grid",
        precision="float32",
        device="cpu",
        arithmetic="native",
        code="of today",
        versions={"torch": "2.14"},
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
        monkeypatch.setattr("rs.ensemble.logit_cache.READ", read)
        for index in (7, 0):
            made, expected = cache.noisy_pool(index, ALPHA).certify(ENTRIES), pool(models, index=index)
            assert {n: as_bytes(c) for n, c in made.items()} == {n: as_bytes(c) for n, c in expected.items()}


def stored_logits(folder, index):
    """(draws, members, classes)."""
    return np.fromfile(folder / f"{index}.float16", np.float16).reshape(N0 + N, 3, 2)


def certificates(cache, index=0):
    return {name: as_bytes(made) for name, made in cache.noisy_pool(index, ALPHA).certify(ENTRIES).items()}


def test_a_process_that_looked_before_another_made_the_cache_does_not_empty_it(tmp_path, monkeypatch):
    """The other makes the cache and fills it as the folder is about to be made."""
    models, folder, mkdir, others = members(), tmp_path / "cache", Path.mkdir, []
    expected = certificates(filled(tmp_path / "alone", models))

    def late(path, *words, **options):
        if path == folder and not others:
            others.append(None)
            others[0] = filled(folder, models)
        mkdir(path, *words, **options)

    monkeypatch.setattr(Path, "mkdir", late)
    cache = OutputCache(folder, key_of(models))
    assert certificates(others[0]) == certificates(cache) == expected


def test_an_image_that_two_processes_fill_at_once_is_whole_for_both(tmp_path, monkeypatch):
    """The second starts, fills the cache and certifies while the first evaluates its draws."""
    models, folder, forward, seen = members(), tmp_path / "cache", MemberLogits.forward, []
    expected = certificates(filled(tmp_path / "alone", models))

    def interrupted(self, x):
        if not seen:
            seen.append(None)
            with monkeypatch.context() as second:
                second.setattr(os, "getpid", lambda: 1)
                seen[0] = certificates(filled(folder, models))
        return forward(self, x)

    monkeypatch.setattr(MemberLogits, "forward", interrupted)
    assert certificates(filled(folder, models)) == seen[0] == expected
    assert sorted(path.name for path in folder.iterdir()) == ["0.float16", "7.float16", "cache.json"]


@pytest.mark.parametrize("change", [lambda old: old[:-1], lambda old: old + b"0", lambda old: b""], ids=range(3))
def test_an_image_of_another_size_is_refused_and_made_anew(tmp_path, change):
    models = members()
    cache = filled(tmp_path, models)
    expected, path = certificates(cache), tmp_path / "0.float16"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=r"image 0 must be in .* before it is certified"):
        cache.noisy_pool(0, ALPHA).certify(ENTRIES)
    assert certificates(filled(tmp_path, models)) == expected


def test_a_folder_of_something_else_is_no_cache(tmp_path):
    filled(tmp_path, members())
    (tmp_path / "cache.json").unlink()
    with pytest.raises(InputError, match=r"must be a cache of outputs or new, but holds .*; name another folder"):
        OutputCache(tmp_path, key_of(members()))


def test_a_cache_that_its_disk_has_no_room_for_is_refused(tmp_path, monkeypatch):
    """One image of 3 members x 360 draws x 2 classes x 2 bytes is missing; those that are there take no more."""
    models = members()
    OutputCache(tmp_path, key_of(models)).fill(models, image(0), 0)
    free = namedtuple("Usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: free(4_319))
    with pytest.raises(InputError, match="must have room for 4,320 bytes of outputs, but its disk has 4,319"):
        OutputCache(tmp_path, key_of(models))
    monkeypatch.setattr("shutil.disk_usage", lambda _: free(4_320))
    OutputCache(tmp_path, key_of(models))


def test_cached_logits_are_within_half_a_unit_of_float16_and_agree_where_classes_are_further_apart(tmp_path):
    models = members()
    cache = filled(tmp_path, models)
    logits = []
    exact = SmoothedClassifier(models[0], 2, SIGMA)
    exact.visit(lambda out, draws: logits.append(out), image(7), N0, 1, 4, 7)
    direct, stored = torch.cat(logits).numpy(), stored_logits(tmp_path, 7)[:N0, 0]
    assert (np.abs(stored - direct) <= np.spacing(np.abs(direct).astype(np.float16)) / 2 * (1 + 1e-6)).all()
    apart = np.abs(direct[:, 0] - direct[:, 1]) > np.spacing(np.abs(direct).max(axis=1).astype(np.float16)) * 2
    assert (stored.argmax(axis=1) == direct.argmax(axis=1))[apart].all()
    assert apart.mean() > 0.9
    one = cache.noisy_pool(7, ALPHA).certify({"one": PoolEntry((0,))})["one"]
    assert abs(int(one.counts0[0]) - int((direct.argmax(axis=1) == 0).sum())) <= (~apart).sum()


def test_a_cache_takes_the_shortcut_as_a_pool_does(tmp_path):
    models = [Rounded(model) for model in members()] + [Constant(0), Constant(1)]
    entries = {**ENTRIES, "zero": PoolEntry((3,)), "one": PoolEntry((4,))}
    made = filled(tmp_path, models).noisy_pool(0, ALPHA).certify(entries, label=1)
    expected = pool(models, entries, label=1)
    assert {n: as_bytes(c) for n, c in made.items()} == {n: as_bytes(c) for n, c in expected.items()}
    assert {c.mode for c in made.values()} == {"certify", "shortcut"}


def test_the_size_of_a_cache_is_known_beforehand(tmp_path):
    filled(tmp_path, members())
    stored = sum(stored_logits(tmp_path, index).nbytes for index in (0, 7))
    assert stored == OutputCache.size(3, 2, N0 + N, 2) == 3 * 2 * (N0 + N) * 2 * 2


def test_a_cache_is_found_again_and_what_is_in_it_is_not_computed_again(tmp_path):
    first = [Counting(Rounded(model)) for model in members()]
    expected = filled(tmp_path, first).noisy_pool(0, ALPHA).certify(ENTRIES)
    evaluated = [model.images for model in first]
    again = filled(tmp_path, first)
    assert [model.images for model in first] == evaluated == [2 * (N0 + N)] * 3
    assert as_bytes(again.noisy_pool(0, ALPHA).certify(ENTRIES)["mme"]) == as_bytes(expected["mme"])


def test_an_image_that_is_not_in_a_cache_is_refused(tmp_path):
    models = members()
    cache = OutputCache(tmp_path, key_of(models))
    cache.fill(models, image(0), 0)
    with pytest.raises(InputError, match=r"image 7 must be in .* before it is certified"):
        cache.noisy_pool(7, ALPHA).certify(ENTRIES)
    for use in (lambda: cache.noisy_pool(3, ALPHA).certify(ENTRIES), lambda: cache.fill(models, image(3), 3)):
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
        cache.noisy_pool(0, ALPHA).certify({"one": PoolEntry((0,))})


@pytest.mark.parametrize(
    "changes",
    [
        {"sigma": 0.25},
        {"seed": 2},
        {"n": N + 1},
        {"indices": [0]},
        {"images": "x"},
        {"members": ["x"]},
        {"code": "mended"},
        {"arithmetic": "portable"},
        {"versions": {"torch": "2.15"}},
    ],
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
