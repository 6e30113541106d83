"""Training by several processes: ``rs.training.distributed``, in processes that torchrun starts."""

import functools
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rs.errors import InputError
from rs.methods import METHODS
from rs.models import architectures
from rs.runtime import processes
from rs.smoothing import noise
from rs.training import attack_backend, distributed
from rs.training.distributed import Part, SharedBatchNorm, part, share_statistics
from rs.training.trainer import Trainer
from tests.support.helpers import python, smallnet, tiny_images, trainer

LARGE = 1e4
PIXELS, ULP = 7 * 3 * 2, {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
NORM = {"eps": 0.01, "momentum": 0.3}
RAGGED = {"batch": 22, "crop": 1, "flip": True}  # 41 images: steps of 22 and 19, or of 11 and 9 twice
FEWER = {"batch": 20, "epochs": 1}  # 21 images: a step of 20, and one of 1 that every process has
NARROW = ("gaussian", "smoothadv", "macer")  # in float32 too
ROUNDING = 3e-12  # in the middle between a rounding in float64 and one in float32, which anything forgotten exceeds


@given(st.integers(0, 300), st.integers(1, 40))
def test_parts_are_in_order_disjoint_and_everything_and_differ_by_one_image(images, world):
    parts = [part(images, rank, world) for rank in range(world)]
    if images < world:
        assert parts == [Part(images, 0, images, 1.0, world)] * world
        return
    assert [i for one in parts for i in range(one.first, one.first + one.images)] == list(range(images))
    assert max(one.images for one in parts) - min(one.images for one in parts) <= 1
    assert {(one.whole, one.copies) for one in parts} == {(images, 1)}
    for one in parts:  # three roundings at most: of a product below 2^53, exact, of a quotient, of this product
        assert one.weight * images == pytest.approx(one.images * world, rel=2**-51)
    assert sum(one.weight for one in parts) / world == pytest.approx(1, rel=world * 2**-52)


def test_shared_statistics_keep_parameters_buffers_their_names_and_the_mode():
    model = architectures.build("resnet20", (1, 8, 8), 2, [0.5], [0.25], 0)
    before, parameters = dict(model.state_dict()), list(model.parameters())
    model.network.layer2.eval()
    modes = [module.training for module in model.modules()]
    assert share_statistics(model) is model
    assert list(model.state_dict()) == list(before)
    assert all(now.data_ptr() == before[name].data_ptr() for name, now in model.state_dict().items())
    assert all(now is then for now, then in zip(model.parameters(), parameters, strict=True))
    assert [module.training for module in model.modules()] == modes
    kinds = [type(module) for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert kinds == [SharedBatchNorm] * 21  # one a convolution: 1 + 18, and 2 shortcuts


def test_in_eval_mode_shared_batch_norm_is_batch_norm():
    shared, plain = smallnet(), smallnet()
    for model in (shared, plain):
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean += 0.5
                module.running_var *= 3
    x = tiny_images(5).resident("cpu")[0] / 255
    assert torch.equal(share_statistics(shared).eval()(x), plain.eval()(x))


@pytest.mark.parametrize("lack", [{"affine": False}, {"track_running_stats": False}, {"momentum": None}])
def test_a_batch_norm_that_lacks_something_is_refused(lack):
    with pytest.raises(ValueError, match="must have parameters, running statistics and a momentum"):
        share_statistics(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, **lack)))


def test_attacks_of_several_processes_are_folded(capfd):
    made = together((0, 2), "advmacer", engine="folded")
    (attacked, _) = made.network._networks
    assert sum(isinstance(module, attack_backend.FoldedConv) for module in attacked.modules()) == 3
    assert capfd.readouterr().err == ""


@given(
    images=st.integers(4, 40),
    batch=st.integers(4, 20),
    draws=st.integers(1, 4),
    world=st.integers(1, 6),
)
def test_the_steps_of_all_processes_put_together_are_those_of_one(images, batch, draws, world):
    made = [
        [*together((rank, size), "smoothadv", images, batch=batch, crop=1, parameters={"draws": draws})._chunks(3)]
        for size in (1, world)
        for rank in range(size)
    ]
    whole, *parts = made
    assert {len(steps) for steps in parts} == {len(whole)}
    for (x, y, all_, *at), *own in zip(whole, *parts, strict=True):
        assert all((one.whole, *where) == (all_.images, *at) for _, _, one, *where in own)
        xs, ys = [x for x, *_ in own], [y for _, y, *_ in own]
        if len(x) < world:
            assert all(torch.equal(one, x) for one in xs)
            assert all(torch.equal(one, y) for one in ys)
        else:
            assert torch.equal(torch.cat(xs), x)
            assert torch.equal(torch.cat(ys), y)


# What the processes do, each for itself, and write down.


def together(place, method, images=24, sigma=0.25, **changes):
    """The trainer of ``helpers``, for one of several processes."""
    one = trainer(method, tiny_images(images), sigma=sigma, **changes)
    how = {"sigma": sigma, "seed": one.seed, "device": one.device, "place": place}
    return Trainer(one.model, one.method, one.images, one.evaluation, one.settings, **how)


@contextmanager
def exactly():
    """Compute in float64 wherever the code says float32, with the same random numbers, which stay float32."""
    drawn = noise._drawn

    def widened(kind, shape, rng, like):
        return drawn(kind, shape, rng, like.to(torch.float32)).double()

    with mock.patch.object(noise, "_drawn", widened), mock.patch.object(Tensor, "float", Tensor.double):
        yield


def trained(place, method, dtype, images=41, **changes):
    """What a training comes to: the state of the model, and the history."""
    with exactly() if dtype == torch.float64 else nullcontext():
        made = together(place, method, images, model=smallnet().to(dtype), **changes)
        made.run()
    return made.model.state_dict(), made.progress.history


def problem(dtype, offset=0.0):
    """Two batches of 7 images, and what the loss makes of each number of the output."""
    rng = torch.Generator().manual_seed(1)
    x = offset + torch.randn(2, 7, 5, 3, 2, generator=rng) * torch.arange(1.0, 6)[:, None, None]
    return x.to(dtype), torch.randn(2, 7, 5, 3, 2, generator=rng).to(dtype)


def normalised(norm, x, slope):
    """Output, gradients and statistics of a batch norm after two batches."""
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 5))
        norm.bias.copy_(torch.linspace(-1, 1, 5))
    x = x.clone().requires_grad_()
    made = [norm(batch) for batch in x]
    sum((out * by).sum() for out, by in zip(made, slope, strict=True)).backward()
    found = {"output": torch.stack(made).detach(), "x": x.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
    return found | dict(norm.named_buffers())


def shared_norm(dtype, offset, rank, world):
    own = part(7, rank, world)
    x, slope = (whole[:, own.first : own.first + own.images] for whole in problem(dtype, offset))
    with exactly() if dtype == torch.float64 else nullcontext():
        return normalised(share_statistics(nn.Sequential(nn.BatchNorm2d(5, **NORM)).to(dtype))[0], x, slope)


def refusal(act):
    try:
        act()
    except InputError as error:
        return str(error)
    return None


def process(folder):
    """One of the processes; everything in one launch, because a launch takes seconds."""
    rank, world = place = processes.rank_and_world_size()
    cpu, found = torch.device("cpu"), {}
    with processes.process_group("gloo"):
        mine = [torch.full((2, 3), 3.0**rank), torch.arange(4.0) * rank, torch.tensor(-1.0)]
        distributed.average(mine)
        found["average"] = mine
        found["agree"] = [refusal(lambda n=n: distributed.agree(n, "epochs", cpu)) for n in (7, 7 + rank)]
        for dtype, offset in ((torch.float64, 0.0), (torch.float32, 0.0), (torch.float32, LARGE)):
            found["norm", dtype, offset] = shared_norm(dtype, offset, rank, world)
        narrow = share_statistics(nn.Sequential(nn.BatchNorm2d(5)))(problem(torch.bfloat16)[0][0])
        found["narrow"] = narrow.detach()
        for method in METHODS:
            found[method, torch.float64] = trained(place, method, torch.float64, **RAGGED)
        for method in NARROW:
            found[method, torch.float32] = trained(place, method, torch.float32, **RAGGED)
        found["fewer"] = trained(place, "macer", torch.float64, images=21, **FEWER)
        checkpoint = folder / f"{rank}.pt"
        if rank == 1:
            trainer(epochs=1).run(checkpoint)
        found["checkpoint"] = refusal(lambda: together(place, "gaussian", epochs=3).run(checkpoint))
    torch.save(found, folder / f"found{rank}.pt")


@pytest.fixture(scope="module", params=[2, 4])
def found(request, tmp_path_factory):
    """What each of 2 and of 4 processes found."""
    folder = tmp_path_factory.mktemp("processes")
    done = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", request.param, __file__, folder)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"found{rank}.pt", weights_only=False) for rank in range(request.param)]


@pytest.mark.slow
def test_tensors_are_averaged_in_place(found):
    """Whole numbers over 2 and 4: nothing is rounded."""
    world = len(found)
    powers, ranks_ = sum(3**rank for rank in range(world)) / world, (world - 1) / 2
    for one in found:
        assert torch.equal(one["average"][0], torch.full((2, 3), powers))
        assert torch.equal(one["average"][1], torch.arange(4.0) * ranks_)
        assert torch.equal(one["average"][2], torch.tensor(-1.0))


@pytest.mark.slow
def test_processes_that_have_not_the_same_number_are_told_all_of_them(found):
    numbers = [7 + rank for rank in range(len(found))]
    for one in found:
        assert one["agree"][0] is None
        assert one["agree"][1].endswith(f"got epochs: {numbers}")
        assert one["checkpoint"].endswith(f"got epochs done: {[0, 1, 0, 0][: len(found)]}")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_shared_batch_norm_is_the_batch_norm_of_all_images(found, dtype):
    """Each number comes of fewer than 10 sums over the pixels of a channel: 10 roundings for each of them."""
    plain = normalised(nn.BatchNorm2d(5, **NORM).double(), *problem(torch.float64))
    parts = [one["norm", dtype, 0.0] for one in found]
    for name in ("output", "x"):
        together_ = torch.cat([one[name] for one in parts], dim=1)
        assert together_.dtype == dtype
        assert (together_ - plain[name]).abs().max() <= 10 * PIXELS * ULP[dtype] * plain[name].abs().max()
    for name in ("weight", "bias"):  # of the loss of each process; their sum is that of the loss of all
        assert (sum(one[name] for one in parts) - plain[name]).abs().max() <= (
            10 * PIXELS * ULP[dtype] * plain[name].abs().max()
        )
    for one in parts:
        for name in ("running_mean", "running_var"):
            assert (one[name] - plain[name]).abs().max() <= 10 * PIXELS * ULP[dtype] * plain[name].abs().max()
        assert one["num_batches_tracked"] == 2


@pytest.mark.slow
def test_shared_batch_norm_loses_nothing_to_a_large_mean(found):
    """A mean of n float32 numbers near 10^4 errs by n 2^-24 10^4 at most, and moves the variance by twice that times
    the largest deviation; the difference of squares in float32 would err by 2^-24 10^8."""
    x, slope = problem(torch.float32, LARGE)
    plain = normalised(nn.BatchNorm2d(5, **NORM).double(), x.double(), slope.double())
    error = PIXELS * ULP[torch.float32] * LARGE
    for one in found:
        norm = one["norm", torch.float32, LARGE]
        assert (norm["running_mean"] - plain["running_mean"]).abs().max() <= error
        worst = (x - LARGE).abs().amax(dim=(0, 1, 3, 4))
        assert ((norm["running_var"] - plain["running_var"]).abs() <= 3 * worst * error).all()


@pytest.mark.slow
def test_shared_batch_norm_answers_in_the_dtype_it_is_given(found):
    """Every process has the same images here, so that the statistics are theirs; bfloat16 rounds to 2^-8, of 8 bits."""
    x = problem(torch.bfloat16)[0][0]
    plain = nn.BatchNorm2d(5).double()(x.double()).detach()
    for one in found:
        assert one["narrow"].dtype == torch.bfloat16
        assert ((one["narrow"] - plain).abs() <= 2**-8 * plain.abs() + 2**-16).all()


@functools.cache
def alone(method, dtype, images=41, **changes):
    return trained((0, 1), method, dtype, images, **changes)


def distance(state, other):
    return sum((state[name].double() - other[name]).square().sum() for name in other) ** 0.5


def numbers(history, epochs=None):
    """The history as a vector; a column that a method has not is left out."""
    kept = [value for row in history[:epochs] for value in row.values() if value is not None]
    return torch.tensor(kept, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_training_by_several_processes_is_that_of_one(found, method):
    """In float64, where rounding cannot hide a mistake."""
    state, history = alone(method, torch.float64, **RAGGED)
    for one in found:
        for name, value in one[method, torch.float64][0].items():
            assert (value - state[name]).abs().max() <= ROUNDING * state[name].abs().max()
        made = one[method, torch.float64][1]
        assert [row.keys() for row in made] == [row.keys() for row in history]
        assert numbers(made).tolist() == pytest.approx(numbers(history).tolist(), rel=ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("method", NARROW)
def test_in_float32_several_processes_are_as_near_the_exact_training_as_one(found, method):
    """Roundings are others, but as many: three times as far is more than they come to by chance."""
    (exact, exact_rows), (narrow, narrow_rows) = (alone(method, t, **RAGGED) for t in (torch.float64, torch.float32))
    rows = numbers(exact_rows, 1)
    error = (numbers(narrow_rows, 1) - rows).abs().max() + ULP[torch.float32] * rows.max()
    for one in found:
        state, made = one[method, torch.float32]
        assert distance(state, exact) <= 3 * distance(narrow, exact)
        assert (numbers(made, 1) - rows).abs().max() <= 3 * error


@pytest.mark.slow
def test_all_processes_end_with_the_same_bytes(found):
    first, *others = found
    for other in others:
        for name in ((method, torch.float64) for method in METHODS):
            assert other[name][1] == first[name][1]
            assert all(torch.equal(value, first[name][0][key]) for key, value in other[name][0].items())


@pytest.mark.slow
def test_a_step_of_fewer_images_than_processes_is_that_of_one(found):
    state, history = alone("macer", torch.float64, 21, **FEWER)
    for one in found:
        for name, value in state.items():
            assert (one["fewer"][0][name] - value).abs().max() <= ROUNDING * value.abs().max()
        assert numbers(one["fewer"][1]).tolist() == pytest.approx(numbers(history).tolist(), rel=ROUNDING)


if __name__ == "__main__":
    process(Path(sys.argv[1]))
