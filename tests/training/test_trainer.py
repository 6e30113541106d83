import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn
from torch.optim.sgd import sgd

import rs.training.trainer
from rs.data.images import PackedImages
from rs.errors import InputError
from rs.methods import METHODS
from rs.methods.base import Step, WeightsImages
from rs.runtime.streams import Stream, derived_seed
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.noise import block
from rs.statistics import metrics
from rs.training.history import HISTORY, TIMING
from rs.training.recipe import RunOptions
from rs.training.warnings import warn_of_chance
from tests.support.helpers import refuses, smallnet, tiny_images, trainer, weights

HINGED = ("macer", "advmacer")


def column(made, name):
    return [row[name] for row in made.progress.history]


class Spied:
    """A method that writes down the images of each step, and may do something at one of them."""

    def __init__(self, method, at=None, act=None):
        self.method, self.steps_per_batch = method, method.steps_per_batch
        self.seen, self.at, self.act = [], at, act
        if isinstance(method, WeightsImages):
            self.image_weights = method.image_weights

    def loss(self, model, x, y, *, sigma, rng, epoch, **targets):
        self.seen.append((x, y, epoch))
        result = self.method.loss(model, x, y, sigma=sigma, rng=rng, epoch=epoch, **targets)
        return self.act(model, result) if len(self.seen) == self.at else result


def dropping(seed=0):
    """A network with a layer that draws from torch's global generator."""
    model = smallnet(seed)
    model.add_module("drop", nn.Dropout(0.1))
    return model


def spied(made, at=None, act=None):
    made.method = Spied(made.method, at, act)
    return made


def interrupt(model, result):
    raise KeyboardInterrupt


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_writes_the_documented_history(method):
    made = trainer(method, eval_every=1)
    before = weights(made.model)
    progress = made.run()
    assert [tuple(row) for row in progress.history] == [HISTORY] * 2
    assert [tuple(row) for row in progress.timing] == [TIMING] * 2
    numbers = [row[name] for row in progress.history for name in HISTORY if name != "hinge_share"]
    assert all(math.isfinite(number) for number in numbers)
    assert [isinstance(row["hinge_share"], float) for row in progress.history] == [
        method in HINGED
    ] * 2
    for row in progress.history:
        assert row["loss"] == pytest.approx(row["cross_entropy"] + row["robustness"], rel=1e-5)
        assert 0 <= row["accuracy"] <= 1
        assert row["gradient_norm"] > 0
    assert not made.model.training
    assert all(
        value != before[key] for key, value in weights(made.model).items()
    )  # layers learn, statistics move


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_what_it_was_not_shown(method):
    """More right on fresh images than guessing gets with a probability of one in a million."""
    made = trainer(method, epochs=6, milestones=[])
    made.run()
    fresh = tiny_images(200, seed=7)
    right = (
        made.model(torch.from_numpy(fresh.images) / 255).argmax(dim=1).numpy() == fresh.labels
    ).sum()
    assert right > stats.binom.isf(1e-6, 200, 0.5)


def test_equal_seeds_make_equal_bytes_and_other_seeds_do_not():
    made = [
        trainer("smoothadv", model=smallnet(0), seed=seed, crop=1, flip=True) for seed in (0, 0, 1)
    ]
    for one in made:
        one.run()
    first, same, other = (weights(one.model) for one in made)
    assert first == same
    assert first["network.fc.weight"] != other["network.fc.weight"]


def test_the_state_of_the_global_generators_does_not_matter():
    def train(seed):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        made = trainer("smoothmix", model=dropping(), crop=1, flip=True)
        made.run()
        return weights(made.model)

    assert train(0) == train(1)


BEFORE_ANY, AFTER_ONE, AFTER_TWO = 4, 8, 14
"""Steps before the first checkpoint, after the first and after the second."""


@pytest.mark.parametrize(
    ("method", "momentum", "at"),
    [
        ("advmacer", 0.9, AFTER_ONE),
        ("gaussian", 0.0, AFTER_ONE),
        ("hard-drop", 0.9, AFTER_ONE),
        ("hard-drop", 0.9, BEFORE_ANY),
        ("hard-drop", 0.9, AFTER_TWO),
        *(
            pytest.param(method, 0.9, AFTER_ONE, marks=pytest.mark.trust_only)
            for method in METHODS
            if method not in ("advmacer", "hard-drop")
        ),
    ],
)
def test_an_interrupted_training_ends_with_the_bytes_of_an_unbroken_one(
    tmp_path, method, momentum, at
):
    """Interrupted at step ``at`` of at least 15, with a checkpoint after every second epoch; of
    velocities if any.
    """
    settings = {
        "epochs": 5,
        "milestones": [2, 4],
        "checkpoint_every": 2,
        "eval_every": 2,
        "crop": 1,
        "flip": True,
    }
    settings |= {"ema_decay": 0.9, "momentum": momentum}
    unbroken = trainer(method, model=dropping(), **settings)
    unbroken.run()
    with pytest.raises(KeyboardInterrupt):
        spied(trainer(method, model=dropping(), **settings), at, interrupt).run(
            tmp_path / "checkpoint.pt"
        )
    resumed = trainer(
        method, model=dropping(99), **settings
    )  # whose weights come from the checkpoint
    if not (tmp_path / "checkpoint.pt").exists():
        resumed = trainer(method, model=dropping(), **settings)
    resumed.run(tmp_path / "checkpoint.pt")
    assert weights(resumed.model) == weights(unbroken.model)
    assert weights(resumed.trained) == weights(unbroken.trained)
    assert resumed.progress.history == unbroken.progress.history
    assert [row["epoch"] for row in resumed.progress.timing] == [1, 2, 3, 4, 5]


def test_a_resumed_training_does_not_repeat_what_the_checkpoint_holds(tmp_path):
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(KeyboardInterrupt):
        spied(trainer(epochs=4), 8, interrupt).run(path)  # 3 steps an epoch: in epoch 3
    resumed = spied(trainer(epochs=4))
    resumed.run(path)
    assert [epoch for _, _, epoch in resumed.method.seen] == [2] * 3 + [3] * 3
    assert resumed.progress.updates == 12
    seconds = [row["seconds"] for row in resumed.progress.timing]
    assert seconds == sorted(seconds)


@pytest.fixture
def used(monkeypatch):
    """The learning rate of every optimiser step from here on."""
    rates = []
    monkeypatch.setattr(
        rs.training.trainer,
        "sgd",
        lambda *tensors, lr, **rest: (rates.append(lr), sgd(*tensors, lr=lr, **rest)),
    )
    return rates


def test_the_learning_rate_is_that_of_torchs_own_schedule(used):
    made = trainer(epochs=6, milestones=[1, 4], decay=0.5, learning_rate=0.08)
    made.run()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.08)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 4], 0.5)
    expected = []
    for _ in range(6):
        expected += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    assert column(made, "learning_rate") == pytest.approx(expected, rel=1e-12)
    steps = len(used) // 6
    assert used == [rate for rate in column(made, "learning_rate") for _ in range(steps)]


def test_a_linear_schedule_rises_and_falls_step_by_step(used):
    made = trainer(
        images=tiny_images(20),
        epochs=5,
        schedule="linear",
        ramp=0.3,
        learning_rate=0.08,
        milestones=[1],
    )
    made.run()
    middles = (np.arange(15) + 0.5) / 15  # 3 steps an epoch, the last of them ragged
    assert used == pytest.approx(np.interp(middles, [0, 0.3, 1], [0, 0.08, 0]), rel=1e-12)
    assert column(made, "learning_rate") == pytest.approx(used[1::3], rel=1e-12)


def test_all_steps_of_a_batch_have_one_learning_rate(used):
    trainer("smoothadv", parameters={"draws": 2}, epochs=1, schedule="linear").run()
    assert used[::2] == used[1::2]
    assert len(set(used)) == len(used) // 2


def test_the_average_of_weights_is_the_exponential_one_of_every_step(monkeypatch):
    states, step = [], rs.training.trainer.Trainer._step

    def recorded(self, *given):
        result = step(self, *given)
        states.append({key: value.clone() for key, value in self.model.state_dict().items()})
        return result

    monkeypatch.setattr(rs.training.trainer.Trainer, "_step", recorded)
    made = trainer(ema_decay=0.75)
    made.run()
    average, *rest = states
    for state in rest:
        average = {key: average[key] * 0.75 + state[key] * 0.25 for key in state}
    kept = made.trained.state_dict()
    assert kept.keys() == average.keys()
    floats = [key for key in kept if kept[key].is_floating_point()]
    assert len(floats) == len(kept) - 3  # all but the counts of batches of three batch norms
    for key in floats:  # each step rounds twice
        torch.testing.assert_close(
            kept[key], average[key], rtol=2 * len(states) * 2**-23, atol=1e-7
        )
    assert not made.trained.training


def test_averaging_does_not_change_the_training():
    made = [trainer(ema_decay=decay) for decay in (None, 0.99)]
    for one in made:
        one.run()
    plain, averaged = made
    assert weights(averaged.model) == weights(plain.model) == weights(plain.trained)
    assert weights(averaged.trained) != weights(averaged.model)


def clocked(monkeypatch, rates):
    """Let each update take a second of the training's clock, and note its learning rate in
    ``rates``.
    """
    clock = itertools.count()
    now = [next(clock)]

    def update(*inputs, lr, **settings):
        rates.append(lr)
        now[0] = next(clock)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("rs.training.trainer.sgd", update)


def test_a_training_of_so_many_seconds_ends_after_them_with_a_learning_rate_of_nearly_0(
    monkeypatch,
):
    """Three batches an epoch, a second each: ten seconds end in the fourth epoch, whatever
    ``epochs`` says.
    """
    rates = []
    clocked(monkeypatch, rates)
    made = trainer(images=tiny_images(24), epochs=2, schedule="linear", learning_rate=0.5, ramp=0.2)
    made.options = replace(made.options, seconds=10.0)
    assert made.run().epoch == 4
    shares = np.arange(10) / 10
    assert rates == pytest.approx(0.5 * np.minimum(shares / 0.2, (1 - shares) / 0.8))
    assert made.progress.updates == 10


def test_milestones_of_a_training_of_so_many_seconds_are_shares_of_its_time(monkeypatch):
    rates = []
    clocked(monkeypatch, rates)
    made = trainer(images=tiny_images(24), epochs=4, milestones=[2], decay=0.1, learning_rate=1.0)
    made.options = replace(made.options, seconds=6.0)
    made.run()
    assert rates == pytest.approx([1.0] * 3 + [0.1] * 3)


def test_a_training_of_so_many_seconds_continues_for_the_rest_of_them(tmp_path, monkeypatch):
    rates = []
    clocked(monkeypatch, rates)
    for seconds, updates in ((3.0, 3), (9.0, 6), (9.0, 0)):
        rates.clear()
        made = trainer(images=tiny_images(24), epochs=2, schedule="linear")
        made.options = replace(made.options, seconds=seconds)
        made.run(tmp_path / "checkpoint.pt")
        assert len(rates) == updates


def test_nesterov_looks_ahead_along_the_velocity():
    """theta <- theta - rate (g + momentum v), v <- momentum v + g (Sutskever et al. 2013, as torch
    writes it).
    """
    rate, momentum = 0.1, 0.9
    ahead = trainer(
        epochs=1,
        milestones=[],
        learning_rate=rate,
        momentum=momentum,
        weight_decay=0.0,
        nesterov=True,
    )
    start = [parameter.detach().clone() for parameter in ahead.parameters]
    gradients = []
    take = ahead._sgd_step

    def noted(own_rate):
        gradients.append([parameter.grad.clone() for parameter in ahead.parameters])
        take(own_rate)

    ahead._sgd_step = noted
    ahead.run()
    for number, (theta, trained) in enumerate(zip(start, ahead.parameters, strict=True)):
        velocity = torch.zeros_like(theta)
        for gradient in gradients:
            velocity = momentum * velocity + gradient[number]
            theta = theta - rate * (gradient[number] + momentum * velocity)
        torch.testing.assert_close(trained.detach(), theta)


@pytest.mark.parametrize(
    ("method", "images", "draws", "sizes"),
    [
        ("gaussian", 24, None, [8, 8, 8]),
        ("gaussian", 19, None, [8, 8, 3]),  # a ragged batch is a step of its own
        ("macer", 19, 4, [8, 8, 3]),  # not chunked: images, each with all its draws
        ("smoothadv", 24, 2, [4] * 6),
        ("smoothadv", 19, 4, [2] * 8),  # the last batch has 3 images, too few for 4 steps
        ("smoothadv", 20, 4, [2] * 8 + [1] * 4),
        ("advmacer", 24, 3, [2] * 9),  # 8 = 3 * 2 + 2: two images of each batch are left out
        ("consistency", 23, 2, [4] * 4 + [3] * 2),  # 7 = 2 * 3 + 1
    ],
)
def test_a_batch_is_cut_into_equal_steps_of_distinct_images(method, images, draws, sizes):
    own = {} if draws is None else {"draws": draws}
    made = spied(trainer(method, images=tiny_images(images), parameters=own, epochs=1))
    made.run()
    assert [len(x) for x, _, _ in made.method.seen] == sizes
    assert made.progress.updates == column(made, "updates")[-1] == len(sizes)
    shown = [tuple(image.flatten().tolist()) for x, _, _ in made.method.seen for image in x]
    assert len(set(shown)) == len(shown)


def test_the_steps_of_a_training_draw_noise_of_their_own():
    class Noise:
        steps_per_batch, drawn = 2, ()

        def loss(self, model, x, y, *, sigma, rng, epoch):
            self.drawn = (*self.drawn, torch.rand(1, generator=rng).item())
            loss = model(x).square().mean()
            return Step(loss, loss, loss, loss)

    made = trainer(epochs=2)
    made.method = Noise()
    made.run()
    assert len(set(made.method.drawn)) == len(made.method.drawn) == 2 * 6


@pytest.mark.parametrize(
    ("every", "epochs", "evaluated"),
    [(0, 3, []), (1, 3, [1, 2, 3]), (2, 5, [2, 4, 5]), (2, 4, [2, 4]), (9, 3, [3])],
)
def test_the_quick_acr_comes_every_so_many_epochs_and_at_the_last(every, epochs, evaluated):
    made = trainer(epochs=epochs, eval_every=every)
    made.run()
    assert [row["epoch"] for row in made.progress.history if row["acr"] is not None] == evaluated


def test_evaluation_changes_nothing_in_the_training():
    blind, watched = (trainer("smoothadv", epochs=3, eval_every=every) for every in (0, 1))
    blind.run()
    watched.run()
    assert weights(blind.model) == weights(watched.model)
    assert column(blind, "loss") == column(watched, "loss")


@pytest.mark.parametrize("decay", [None, 0.9])
def test_the_quick_acr_is_the_acr_of_full_certificates_of_images_all_over_the_split(
    monkeypatch, decay
):
    """Of the averaged network, where weights are averaged."""
    budget = {"eval_images": 6, "eval_n0": 20, "eval_n": 150, "eval_alpha": 0.01}
    made = trainer(eval_every=4, epochs=4, milestones=[], ema_decay=decay, **budget)
    seen, pixels = [], PackedImages.pixels
    monkeypatch.setattr(
        PackedImages, "pixels", lambda images, i: (seen.append(i), pixels(images, i))[1]
    )
    made.run()
    assert seen == [0, 1, 3, 5, 7, 9]
    classifier, images = (
        SmoothedClassifier(made.trained, 2, 0.25, noise="gaussian"),
        made.evaluation,
    )
    seed = int(
        np.random.SeedSequence(0, spawn_key=(Stream.EVALUATE,)).generate_state(1, np.uint32)[0]
    )
    budget = {"n0": 20, "n": 150, "alpha": 0.01, "seed": seed}
    rows = [
        classifier.certify(images.pixels(i), **budget, index=i).row(i, int(images.labels[i]))
        for i in [*seen]
    ]
    assert column(made, "acr")[-1] == metrics.acr(pd.DataFrame(rows)) > 0


def test_the_quick_acr_sees_no_draw_of_a_certificate(monkeypatch):
    made = trainer(eval_every=1, eval_images=3, epochs=1)
    seeds, blocks = range(20), []
    assert made.options.seed in seeds

    def recorded(*words, **settings):
        blocks.append(block(*words, **settings))
        return blocks[-1]

    monkeypatch.setattr("rs.smoothing.noise.block", recorded)
    made.run()
    quick, blocks[:] = [*blocks], []
    assert quick
    classifier = SmoothedClassifier(made.model, 2, 0.25, noise="gaussian")
    for seed in seeds:
        for i in range(3):
            classifier.certify(made.evaluation.pixels(i), 100, 100, 0.01, index=i, seed=seed)
    assert len(blocks) > len(seeds)
    certified = {one.flatten()[:8].numpy().tobytes() for one in blocks}
    assert certified.isdisjoint(one.flatten()[:8].numpy().tobytes() for one in quick)


@pytest.mark.parametrize(("accuracy", "warns"), [(0.5, True), (0.61, True), (0.62, False)])
def test_an_accuracy_is_chance_up_to_the_quantile_of_as_many_coins(capsys, accuracy, warns):
    """Of 100 fair coins 62 are heads with a probability below 1 % (normal approximation)."""
    warn_of_chance(accuracy, np.repeat([0, 1], 50))
    assert ("is not clearly above chance, 50.0%" in capsys.readouterr().err) == warns


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_names_its_epoch_and_keeps_the_last_checkpoint(tmp_path, value):
    """Three steps an epoch: the sixth is the last of epoch 2."""
    made = spied(trainer(epochs=4), 6, lambda _, result: replace(result, loss=result.loss * value))
    with refuses(f"the loss must stay finite, but epoch 2 gave {value}"):
        made.run(tmp_path / "checkpoint.pt")
    kept = trainer(epochs=4)
    kept.restore(tmp_path / "checkpoint.pt")
    assert kept.progress.epoch == 1
    assert all(value.isfinite().all() for value in kept.model.state_dict().values())


def test_a_gradient_that_is_not_finite_in_the_last_step_is_refused_although_no_loss_shows_it():
    """sqrt has the value 0 and an infinite derivative at 0."""

    def spoil(model, result):
        return replace(result, loss=result.loss + (0.0 * model.network.fc.bias.sum()).sqrt())

    with pytest.raises(InputError, match="must stay finite, but epoch 1 gave"):
        spied(trainer(epochs=1), 3, spoil).run()


def test_one_step_moves_the_weights_by_the_learning_rate_times_the_clipped_norm():
    limit, rate = 1e-3, 0.5
    settings = {
        "batch": 24,
        "epochs": 1,
        "learning_rate": rate,
        "momentum": 0.0,
        "weight_decay": 0.0,
    }
    made = trainer(clip_norm=limit, **settings)
    before = [p.detach().clone() for p in made.model.parameters()]
    made.run()
    moved = torch.cat(
        [(p.detach() - q).flatten() for p, q in zip(made.model.parameters(), before, strict=True)]
    )
    assert column(made, "gradient_norm")[0] > 100 * limit  # reported as it was before clipping
    assert moved.double().norm().item() == pytest.approx(
        rate * limit, rel=1e-3
    )  # float32 weights, moved by 1e-5


def test_momentum_and_weight_decay_follow_the_recursion_of_sgd():
    """v <- m v + (g + w theta), theta <- theta - rate v, on a loss whose gradient is the constant
    1.
    """
    rate, momentum, decay = 0.1, 0.9, 0.01

    class Slope:
        steps_per_batch = 1

        def loss(self, model, x, y, *, sigma, rng, epoch):
            loss = model.theta.sum()
            return Step(loss, loss, loss, loss)

    model = nn.Module()
    model.theta = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    made = trainer(
        model=model,
        epochs=2,
        milestones=[],
        learning_rate=rate,
        momentum=momentum,
        weight_decay=decay,
    )
    made.method = Slope()
    made.run()
    theta, v = 2.0, 0.0
    for _ in range(6):
        v = momentum * v + (1 + decay * theta)
        theta -= rate * v
    assert model.theta.item() == pytest.approx(theta, rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_trains_float32_weights_to_something_else(method):
    wide, narrow = (trainer(method, precision=precision) for precision in ("float32", "bfloat16"))
    wide.run()
    narrow.run()
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in narrow.model.parameters())
    before = weights(smallnet())
    assert all(value != before[key] for key, value in weights(narrow.model).items())
    assert weights(narrow.model) != weights(wide.model)


@pytest.mark.parametrize(("batch", "images"), [(3, 24), (8, 3)])
def test_a_step_of_less_than_one_image_is_refused_beforehand(batch, images):
    with pytest.raises(
        InputError, match=rf"at least the number of draws, 4.* got {batch} and {images}"
    ):
        trainer("smoothadv", images=tiny_images(images), parameters={"draws": 4}, batch=batch)


POSITIVE = ["epochs", "batch", "learning_rate", "decay", "checkpoint_every", "eval_n"]


@pytest.mark.parametrize(("name", "value"), [*((name, 0) for name in POSITIVE), ("crop", 10**9)])
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        trainer(**{name: value})


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_card_holds_is_refused_before_the_training(seed):
    with pytest.raises(InputError, match=rf"seed must be at least 0 and below 2\^63, got {seed}"):
        RunOptions(sigma=0.25, seed=seed, device=torch.device("cpu"))


def test_initial_weights_have_a_seed_of_their_own_for_every_seed():
    seeds = [derived_seed(seed, Stream.INITIAL) for seed in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert all(a != b for a, b in itertools.product(seeds, range(100)))  # not the seed itself


@pytest.mark.parametrize("engine", ["plain", "folded"])
def test_a_last_step_of_one_image_that_batch_norm_cannot_train_on_is_refused_in_words(engine):
    model = nn.Sequential(nn.Conv2d(1, 4, 4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    made = trainer(images=tiny_images(9), model=model, batch=4, engine=engine)
    with pytest.raises(
        InputError,
        match=r"training\.batch must leave no step of one image .* got 4 of 9 images; take",
    ):
        made.run()


def test_another_error_of_a_step_stays_what_it_is():
    class Broken(nn.Identity):
        def forward(self, x):
            raise ValueError("mine")

    made = trainer(model=nn.Sequential(Broken(), nn.Flatten(), nn.Linear(16, 2)))
    with pytest.raises(ValueError, match="mine"):
        made.run()
