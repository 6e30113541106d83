import copy
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from rs.methods import METHODS
from rs.models.checkpoint import read_card
from rs.runtime.streams import Stream, derived_seed
from rs.smoothing.classifier import SmoothedClassifier
from rs.statistics import metrics
from rs.training.history import HISTORY, TIMING
from rs.training.recipe import RunOptions, training_recipe
from rs.training.run import splits, train_model
from rs.training.warnings import warn_of_chance
from tests.support.helpers import refuses, smallnet, tiny_images, tiny_params, trainer, weights

HINGED = ("macer", "advmacer")


def column(training, name):
    return [row[name] for row in training.progress.history]


def spied(training, at=None, act=None):
    """Keep the images and the seed of each step of a training, and do something at one of them."""
    compute = training.method.loss
    training.seen = []
    training.seeds = []

    def loss(model, x, y, *, rng, **arguments):
        training.seen.append(x)
        training.seeds.append(rng.initial_seed())
        result = compute(model, x, y, rng=rng, **arguments)
        return act(model, result) if len(training.seen) == at else result

    object.__setattr__(training.method, "loss", loss)  # which is frozen
    return training


def interrupt(model, result):
    raise KeyboardInterrupt


def dropping(seed=0):
    """A network with a layer that draws from torch's global generator."""
    model = smallnet(seed)
    model.add_module("drop", nn.Dropout(0.1))
    return model


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_writes_the_documented_history(method):
    training = trainer(method, eval_every=1)
    before = weights(training.model)
    progress = training.run()
    assert [tuple(row) for row in progress.history] == [HISTORY] * 2
    assert [tuple(row) for row in progress.timing] == [TIMING] * 2
    for row in progress.history:
        assert (row.pop("hinge_share") is not None) == (method in HINGED)
        assert all(math.isfinite(number) for number in row.values())
        assert row["loss"] == pytest.approx(row["cross_entropy"] + row["robustness"], rel=1e-5)
        assert 0 <= row["accuracy"] <= 1
        assert row["gradient_norm"] > 0
    assert not training.model.training
    after = weights(training.model)
    for name, value in before.items():  # layers learn, statistics move
        assert after[name] != value


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_what_it_was_not_shown(method):
    """More right on fresh images than guessing gets with a probability of one in a million."""
    training = trainer(method, epochs=6, milestones=[])
    training.run()
    fresh = tiny_images(200, seed=7)
    predicted = training.model(torch.from_numpy(fresh.images) / 255).argmax(dim=1)
    correct = (predicted.numpy() == fresh.labels).sum()
    assert correct > stats.binom.isf(1e-6, 200, 0.5)


def test_equal_seeds_make_equal_bytes_and_other_seeds_do_not():
    def trained(seed):
        training = trainer("smoothadv", model=smallnet(0), seed=seed, crop=1, flip=True)
        training.run()
        return weights(training.model)

    first = trained(0)
    assert trained(0) == first
    assert trained(1)["network.fc.weight"] != first["network.fc.weight"]


@pytest.mark.parametrize(
    ("method", "epochs"),
    [
        ("advmacer", 2.6),
        ("hard-drop", 1.4),
        ("hard-drop", 4.6),
        *(pytest.param(method, 2.6, marks=pytest.mark.trust_only) for method in METHODS),
    ],
)
def test_an_interrupted_training_ends_with_the_bytes_of_an_unbroken_one(tmp_path, method, epochs):
    """Interrupted after so many of 5 epochs, with a checkpoint after every second one."""
    checkpoint = tmp_path / "checkpoint.pt"
    settings = {"epochs": 5, "milestones": [2, 4], "checkpoint_every": 2, "eval_every": 2}
    settings |= {"crop": 1, "flip": True, "ema_decay": 0.9}
    unbroken = trainer(method, model=dropping(), **settings)
    updates = unbroken.run().updates
    interrupted = trainer(method, model=dropping(), **settings)
    with pytest.raises(KeyboardInterrupt):
        spied(interrupted, int(epochs * updates / 5), interrupt).run(checkpoint)
    has_checkpoint = epochs > 2
    assert checkpoint.exists() == has_checkpoint

    seed = 99 if has_checkpoint else 0  # the checkpoint's weights count
    resumed = spied(trainer(method, model=dropping(seed), **settings))
    resumed.run(checkpoint)

    epochs_in_checkpoint = int(epochs) // 2 * 2
    assert weights(resumed.model) == weights(unbroken.model)
    assert weights(resumed.trained) == weights(unbroken.trained)
    assert resumed.progress.history == unbroken.progress.history
    assert [row["epoch"] for row in resumed.progress.timing] == [1, 2, 3, 4, 5]
    assert len(resumed.seen) == updates - epochs_in_checkpoint * updates // 5


@pytest.fixture
def rates(monkeypatch):
    """The learning rate of every optimizer step, each of which takes a second of the clock."""
    seen = []
    update = torch.optim.SGD.step

    def step(self):
        seen.append(self.param_groups[0]["lr"])
        update(self)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    monkeypatch.setattr("time.perf_counter", lambda: float(len(seen)))
    return seen


def test_the_learning_rate_decays_at_each_milestone(rates):
    training = trainer(epochs=6, milestones=[1, 4], decay=0.5, learning_rate=0.08)
    training.run()
    expected = 0.08 * 0.5 ** np.array([0, 1, 1, 1, 2, 2])
    assert column(training, "learning_rate") == pytest.approx(expected, rel=1e-12)
    assert rates == pytest.approx(np.repeat(expected, 3), rel=1e-12)


def test_a_linear_schedule_rises_and_falls_step_by_step(rates):
    """Three steps per epoch, the last of them with fewer images."""
    settings = {"epochs": 5, "schedule": "linear", "ramp": 0.3, "learning_rate": 0.08}
    training = trainer(images=tiny_images(20), **settings, milestones=[1])
    training.run()
    middles = (np.arange(15) + 0.5) / 15
    assert rates == pytest.approx(np.interp(middles, [0, 0.3, 1], [0, 0.08, 0]), rel=1e-12)
    assert column(training, "learning_rate") == pytest.approx(rates[1::3], rel=1e-12)


def test_all_steps_of_a_batch_have_one_learning_rate(rates):
    trainer("smoothadv", parameters={"draws": 2}, epochs=1, schedule="linear").run()
    assert rates[::2] == rates[1::2]
    assert len(set(rates)) == len(rates) // 2


def test_a_training_of_limited_seconds_ends_after_them_with_a_learning_rate_of_nearly_0(rates):
    """Ten seconds end in the fourth epoch, whatever ``epochs`` says."""
    training = trainer(seconds=10.0, epochs=2, schedule="linear", learning_rate=0.5, ramp=0.2)
    assert training.run().epoch == 4
    shares = np.arange(10) / 10
    rise = shares / 0.2
    fall = (1 - shares) / 0.8
    assert rates == pytest.approx(0.5 * np.minimum(rise, fall))
    assert training.progress.updates == 10


def test_milestones_of_a_training_of_limited_seconds_are_shares_of_its_time(rates):
    trainer(seconds=6.0, epochs=4, milestones=[2], decay=0.1, learning_rate=1.0).run()
    assert rates == pytest.approx([1.0] * 3 + [0.1] * 3)


def test_a_training_of_limited_seconds_continues_for_the_rest_of_them(tmp_path, rates):
    for seconds, updates in ((3.0, 3), (9.0, 6), (9.0, 0)):
        rates.clear()
        trainer(seconds=seconds, epochs=2, schedule="linear").run(tmp_path / "checkpoint.pt")
        assert len(rates) == updates


def test_a_training_of_limited_seconds_takes_an_epoch_and_shows_its_progress(
    tmp_path, tiny, work, monkeypatch, capsys
):
    monkeypatch.setattr("rs.runtime.progress.QUIET_SECONDS", 0.0)
    recipe = training_recipe(tiny_params(), "tiny", "gaussian", 0.25)
    options = RunOptions(sigma=0.25, seed=0, device=torch.device("cpu"), seconds=0.0)
    pair = splits(recipe, tiny)
    train_model(recipe, *pair, options, out=tmp_path / "out", log=tmp_path / "log")
    assert recipe.training.epochs > 1
    card = read_card(tmp_path / "out")
    assert card.epochs == card.training["epochs"] == 1
    assert re.search(r"train: 1, .*/s", capsys.readouterr().err)


def test_the_average_of_weights_is_the_exponential_one_of_every_step():
    plain = trainer()
    plain.run()
    averaged = trainer(ema_decay=0.75)
    states = []

    def keep_state(*_):
        states.append(copy.deepcopy(averaged.model.state_dict()))

    averaged.optimizers[0].register_step_post_hook(keep_state)
    averaged.run()
    assert weights(averaged.model) == weights(plain.model) == weights(plain.trained)
    assert not averaged.trained.training
    rounding = {"rtol": 2 * len(states) * 2**-23, "atol": 1e-7}  # each step rounds twice
    for key, value in averaged.trained.state_dict().items():
        if value.is_floating_point():
            expected = states[0][key]
            for state in states[1:]:
                expected = expected * 0.75 + state[key] * 0.25
            torch.testing.assert_close(value, expected, **rounding)


@pytest.mark.parametrize(
    ("method", "images", "draws", "sizes"),
    [
        ("gaussian", 19, None, [8, 8, 3]),  # a ragged batch is a step of its own
        ("macer", 19, 4, [8, 8, 3]),  # not chunked: images, each with all its draws
        ("smoothadv", 19, 4, [2] * 8),  # the last batch has 3 images, too few for 4 steps
        ("smoothadv", 20, 4, [2] * 8 + [1] * 4),
        ("advmacer", 24, 3, [2] * 9),  # 8 = 3 * 2 + 2: two images of each batch are left out
    ],
)
def test_a_batch_is_cut_into_equal_steps_of_distinct_images(method, images, draws, sizes):
    parameters = {} if draws is None else {"draws": draws}
    training = spied(trainer(method, images=tiny_images(images), parameters=parameters, epochs=1))
    training.run()
    shown = torch.cat(training.seen)
    assert [len(x) for x in training.seen] == sizes
    assert training.progress.updates == len(sizes)
    assert column(training, "updates")[-1] == len(sizes)
    assert len(shown.unique(dim=0)) == len(shown)


def test_images_that_an_epoch_discards_stay_discarded():
    training = trainer("hard-drop", sigma=1.0, parameters={"threshold": 0.8}, epochs=4)
    training.epoch(0)
    training.epoch(1)
    discarded = training.image_weights == 0
    assert 0 < discarded.sum() < len(training.images)
    for epoch in (2, 3):
        training.epoch(epoch)
        assert torch.equal(training.image_weights == 0, discarded)


def test_the_steps_of_a_training_draw_noise_of_their_own():
    training = spied(trainer("smoothadv", parameters={"draws": 2}, epochs=2))
    training.run()
    assert len(set(training.seeds)) == training.progress.updates == 2 * 6


def test_the_quick_acr_comes_every_few_epochs_and_at_the_last():
    training = trainer(epochs=5, eval_every=2)
    training.run()
    has_acr = [acr is not None for acr in column(training, "acr")]
    assert has_acr == [False, True, False, True, True]


def test_evaluation_changes_nothing_in_the_training():
    blind = trainer("smoothadv", epochs=3, eval_every=0)
    watched = trainer("smoothadv", epochs=3, eval_every=1)
    blind.run()
    watched.run()
    assert weights(blind.model) == weights(watched.model)
    assert column(blind, "loss") == column(watched, "loss")


@pytest.mark.parametrize("decay", [None, 0.9])
def test_the_quick_acr_is_the_acr_of_certificates_of_images_all_over_the_split(decay):
    """The network with averaged weights is evaluated, where weights are averaged."""
    settings = {"epochs": 4, "milestones": [], "ema_decay": decay, "eval_every": 4}
    settings |= {"eval_images": 6, "eval_n0": 20, "eval_n": 150, "eval_alpha": 0.01}
    training = trainer(sigma=1.0, **settings)
    training.run()
    classifier = SmoothedClassifier(training.trained, 2, 1.0, noise="gaussian")
    seed = derived_seed(0, Stream.EVALUATE)
    rows = []
    for index in (0, 1, 3, 5, 7, 9):
        x = training.evaluation.pixels(index)
        label = int(training.evaluation.labels[index])
        certificate = classifier.certify(x, n0=20, n=150, alpha=0.01, seed=seed, index=index)
        rows.append(certificate.row(index, label))
        assert certificate.counts.min() > 0  # other noise would have other votes
    expected = metrics.acr(pd.DataFrame(rows))
    assert expected > 0
    assert column(training, "acr")[-1] == expected


@pytest.mark.parametrize(("accuracy", "warns"), [(0.5, True), (0.61, True), (0.62, False)])
def test_an_accuracy_is_chance_up_to_the_quantile_of_as_many_coins(capsys, accuracy, warns):
    """Of 100 fair coins 62 are heads with a probability below 1 % (normal approximation)."""
    warn_of_chance(accuracy, np.repeat([0, 1], 50))
    assert ("is not clearly above chance, 50.0%" in capsys.readouterr().err) == warns


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_names_its_epoch_and_keeps_the_last_checkpoint(tmp_path, value):
    """Three steps per epoch: the sixth is the last of epoch 2."""

    def spoil(model, result):
        return replace(result, loss=result.loss * value)

    with refuses(f"the loss must stay finite, but epoch 2 gave {value}"):
        spied(trainer(epochs=4), 6, spoil).run(tmp_path / "checkpoint.pt")
    restored = trainer(epochs=4)
    restored.restore(tmp_path / "checkpoint.pt")
    assert restored.progress.epoch == 1
    for value in restored.model.state_dict().values():
        assert value.isfinite().all()


def test_an_infinite_gradient_in_the_last_step_is_refused_although_no_loss_shows_it():
    """sqrt has the value 0 and an infinite derivative at 0."""

    def spoil(model, result):
        return replace(result, loss=result.loss + (0.0 * model.network.fc.bias.sum()).sqrt())

    with refuses("must stay finite, but epoch 1 gave"):
        spied(trainer(epochs=1), 3, spoil).run()


def test_one_step_moves_the_weights_by_the_learning_rate_times_the_clipped_norm():
    limit, rate = 1e-3, 0.5
    settings = {"batch": 24, "epochs": 1, "momentum": 0.0, "weight_decay": 0.0}
    training = trainer(clip_norm=limit, learning_rate=rate, **settings)
    before = torch.cat([value.flatten() for value in training.parameters]).detach()
    training.run()
    after = torch.cat([value.flatten() for value in training.parameters]).detach()
    assert column(training, "gradient_norm")[0] > 100 * limit  # as it was before clipping
    # float32 weights, moved by 1e-5
    assert (after - before).double().norm().item() == pytest.approx(rate * limit, rel=1e-3)


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_sgd_has_the_momentum_and_decay_of_the_settings(momentum):
    training = trainer(momentum=momentum, nesterov=True, weight_decay=0.01)
    (sgd,) = training.optimizers
    assert sgd.defaults["momentum"] == momentum
    assert sgd.defaults["weight_decay"] == 0.01
    assert sgd.defaults["nesterov"] == (momentum > 0)  # torch refuses nesterov without momentum


def test_bfloat16_trains_float32_weights_to_something_else():
    wide = trainer("advmacer", precision="float32")
    narrow = trainer("advmacer", precision="bfloat16")
    wide.run()
    narrow.run()
    for parameter in narrow.model.parameters():
        assert parameter.dtype == torch.float32
        assert parameter.isfinite().all()
    assert weights(narrow.model) != weights(wide.model)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_card_holds_is_refused_before_the_training(seed):
    with refuses(rf"seed must be at least 0 and below 2\^63, got {seed}"):
        RunOptions(sigma=0.25, seed=seed, device=torch.device("cpu"))


@pytest.mark.parametrize("engine", ["plain", "folded"])
def test_a_last_step_of_one_image_that_batch_norm_cannot_train_on_is_refused_in_words(engine):
    model = nn.Sequential(nn.Conv2d(1, 4, 4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    training = trainer(images=tiny_images(9), model=model, batch=4, engine=engine)
    with refuses(r"must leave no step of one image .* got 4 of 9 images"):
        training.run()
