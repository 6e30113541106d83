"""Training by several processes: ``rs.training.trainer`` in several processes."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rs.data.images import PackedImages
from rs.methods import METHODS
from rs.models.architectures import Logits, Normalize
from rs.runtime import processes
from rs.training import attack_backend, record, run
from rs.training.history import HISTORY
from rs.training.recipe import training_recipe
from tests.support.forked import run_forked
from tests.support.helpers import python, refuses, tiny_images, tiny_params, trainer

# in the middle between a rounding in float64 and one in float32, which anything forgotten exceeds
ROUNDING = 3e-12
WHOLE = {
    "batch": 16,
    "epochs": 2,
    "clip_norm": 0.5,
    "schedule": "linear",
}  # 40 images: batches of 16, 16 and 8
RESUMED = {"epochs": 3, "crop": 1, "flip": True}


class ExactImages(PackedImages):
    """Batches in float64, so that noise and attacks are in float64 too."""

    def batches(self, order, epoch, device, workers=0):
        for x, y in super().batches(order, epoch, device, workers):
            yield x.double(), y


def bare():
    """A network without batch norm, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), Logits(64, 2)
    return nn.Sequential(Normalize([0.5], [0.25]), *layers).double()


def exact(method, **changes):
    """A training in float64 of a network without batch norm."""
    images = tiny_images(40)
    return trainer(
        method, ExactImages(images.meta, images.images, images.labels), bare(), **changes
    )


def without_noise():
    """A training in which no random number matters."""
    return exact("advmacer", sigma=0.0, parameters={"epsilon": 0.2}, **WHOLE)


def recorded(training):
    """What the last step of a training was given, and the gradient that it moved the weights by."""
    compute = training.method.loss
    found = {}

    def loss(model, x, y, *, sigma, rng, epoch, **targets):
        found["given"] = x, y, rng.get_state(), epoch, targets
        found["state"] = copy.deepcopy(training.model.state_dict())
        return compute(model, x, y, sigma=sigma, rng=rng, epoch=epoch, **targets)

    object.__setattr__(training.method, "loss", loss)  # which is frozen
    training.run()
    return found | {"gradients": [parameter.grad for parameter in training.parameters]}


def resumed(method, folder, rank):
    """Weights of an unbroken training, and of one that continues from a checkpoint that the first
    process alone has.
    """
    unbroken, checkpoint = exact(method, **RESUMED), folder / f"{method}{rank}.pt"
    unbroken.run()
    exact(method, **{**RESUMED, "epochs": 2}).run(checkpoint)
    assert checkpoint.exists() == (rank == 0)
    continued = exact(method, **RESUMED)
    with torch.no_grad():
        for parameter in continued.parameters:
            parameter.mul_(1 + rank)  # what the checkpoint has counts, not what a process has
    continued.run(checkpoint)
    return [(one.parameters, one.progress, one.image_weights) for one in (unbroken, continued)]


def process(folder):
    """Train in one of the processes; everything in one start, which takes seconds."""
    rank, _ = processes.rank_and_world_size()
    found = {}
    with processes.process_group("gloo"):
        whole = without_noise()
        found["whole"] = whole.run().history, whole.model.state_dict()
        for method in METHODS:
            found["step", method] = recorded(exact(method, epochs=1, batch=16))
            found["norm", method] = recorded(trainer(method, epochs=1, engine="folded"))
        found["resumed"] = {
            method: resumed(method, folder, rank) for method in ("advmacer", "hard-drop")
        }
    torch.save(found, folder / f"found{rank}.pt")


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.trust_only)])
def found(request, tmp_path_factory):
    """What each of 2 and of 4 processes found."""
    folder = tmp_path_factory.mktemp("processes")
    done = python(__file__, request.param, folder)
    assert done.returncode == 0, done.stderr
    assert "UserWarning" not in done.stderr
    return [
        torch.load(folder / f"found{rank}.pt", weights_only=False) for rank in range(request.param)
    ]


def near(found, expected):
    return (found - expected).abs().max() <= ROUNDING * expected.abs().max()


@pytest.mark.slow
def test_without_noise_and_batch_norm_a_training_by_several_processes_is_that_of_one(found):
    """In float64, where rounding cannot hide a mistake; weights and the history are compared."""
    alone = without_noise()
    history = alone.run().history
    for one in found:
        rows, state = one["whole"]
        assert all(near(state[key], value) for key, value in alone.model.state_dict().items())
        for row, expected in zip(rows, history, strict=True):
            for name in HISTORY[:-1]:  # all but the ACR; reported in float32
                assert row[name] == pytest.approx(expected[name], rel=4 * 2.0**-24)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_of_a_step_is_that_of_the_images_of_all_processes(found, method):
    """The loss is a mean over images, of which all processes have equally many, each with the noise
    it drew.
    """
    model, losses = bare(), []
    objective = exact(method).method
    model.load_state_dict(found[0]["step", method]["state"])
    for one in found:
        x, y, state, epoch, targets = one["step", method]["given"]
        rng = torch.Generator().set_state(state)
        losses.append(
            objective.loss(model.train(), x, y, sigma=0.25, rng=rng, epoch=epoch, **targets).loss
        )
    torch.stack(losses).mean().backward()
    for one in found:
        gradients = one["step", method]["gradients"]
        assert all(near(got, p.grad) for got, p in zip(gradients, model.parameters(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", ["step", "norm"])
def test_processes_have_images_and_noise_of_their_own_and_weights_and_statistics_of_the_first(
    found, method, network
):
    first, *others = (one[network, method] for one in found)
    shown = [
        tuple(image.flatten().tolist())
        for one in found
        for image in one[network, method]["given"][0]
    ]
    assert len(set(shown)) == len(shown)
    assert len({one[network, method]["given"][2].numpy().tobytes() for one in found}) == len(found)
    for other in others:
        assert all(torch.equal(value, first["state"][key]) for key, value in other["state"].items())
        assert all(map(torch.equal, other["gradients"], first["gradients"]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["advmacer", "hard-drop"])
def test_all_processes_continue_from_the_checkpoint_of_the_first(found, method):
    """More than two add gradients up in another order in the first step, so the weights are those
    but for rounding.
    """
    (expected, _, image_weights), (first, *_) = found[0]["resumed"][method]
    assert (image_weights is None) == (method == "advmacer")
    for one in found:
        _, (weights, progress, again) = one["resumed"][method]
        assert image_weights is None or torch.equal(again, image_weights)
        assert all(map(torch.equal, weights, first))
        assert all(map(torch.equal if len(found) == 2 else near, weights, expected))
        assert [row["epoch"] for row in progress.history] == [1, 2, 3]
        assert len(progress.timing) == 3


def test_attacks_of_several_processes_are_folded_and_the_trained_network_is_not_compiled(
    monkeypatch,
):
    """The network of the loss runs inside DistributedDataParallel, which a compiler's trial would
    set off.
    """
    monkeypatch.setattr(processes, "rank_and_world_size", lambda: (1, 2))
    monkeypatch.setattr("rs.training.trainer.DistributedDataParallel", lambda module: module)
    network = trainer("advmacer", engine="compiled").network
    trained = network._trained[0]
    attacked = network._make_attacked().module
    assert sum(isinstance(module, attack_backend.FoldedConv) for module in attacked.modules()) == 3
    assert not isinstance(trained, attack_backend.OneShape)


@pytest.mark.parametrize(
    ("world_size", "batch", "images", "message"),
    [
        (1, 1, 24, "at least the number of draws, 2.* got 1 and 24"),
        (1, 8, 1, "at least the number of draws, 2.* got 8 and 1"),
        (3, 8, 24, "training.batch must be divisible by the number of processes, got 8 and 3"),
        (4, 8, 7, "at least .* got 8 and 7 for 4 processes"),
    ],
)
def test_a_step_of_less_than_one_image_per_process_is_refused_beforehand(
    monkeypatch, world_size, batch, images, message
):
    monkeypatch.setattr(processes, "rank_and_world_size", lambda: (0, world_size))
    with refuses(message):
        trainer("smoothadv", tiny_images(images), batch=batch)


def test_a_limit_of_seconds_is_refused_because_clocks_differ(monkeypatch):
    monkeypatch.setattr(processes, "rank_and_world_size", lambda: (0, 2))
    with refuses("seconds must not be limited where several processes train together"):
        trainer(seconds=1.0)


def test_a_checkpoint_is_not_continued_by_another_number_of_processes(monkeypatch):
    """It would be a model of neither number, and provenance.json says one."""
    training = trainer()
    recipe = training_recipe(tiny_params(), "tiny", "gaussian", 0.25)
    card = run._card(recipe, training.images, training.options)

    def identity():
        inputs = record.inputs_of(training.images, training.options, training.model)
        return run._identity(card, inputs, training.model)

    alone = identity()
    monkeypatch.setattr(processes, "rank_and_world_size", lambda: (0, 2))
    assert identity() == alone | {"processes": 2}


if __name__ == "__main__":
    import torch._dynamo  # before the fork, so once: DistributedDataParallel imports it

    run_forked(int(sys.argv[1]), lambda: process(Path(sys.argv[2])))
