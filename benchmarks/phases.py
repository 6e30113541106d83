"""Where a training step of AdvMacer goes: its phases, its kinds of layers, and other ways to compute the attack.

``python -m benchmarks.phases``. Processor seconds of one thread are counted, so that other work on the machine changes
little; each round takes all ways, one after the other. Images and labels are random. What compiling brings is in
``benchmarks.steps``.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from benchmarks.common import SIGMA, Architecture, machine, network
from benchmarks.steps import own_trainer, random_images
from rs.command_line.shell import ParamsFile, run

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from rs.methods.advmacer import AdvMacer
    from rs.training.trainer import Trainer

KINDS = {
    "convolutions": ("conv",),
    "batch norms": ("batch_norm",),
    "ReLU": ("relu", "threshold", "clamp_min"),
    "random numbers": ("randn", "normal"),
    "additions and products": ("add", "mul", "sub", "div"),
    "copies": ("copy", "clone", "contiguous", "fill", "zero"),
}
"""Kinds of operations, by parts of their names; the first that fits counts."""

Phases = dict[str, float]
"""Processor seconds of each phase of a step."""


class Way(NamedTuple):
    """How the attack is computed."""

    attacked: nn.Module  # in eval mode
    precision: str  # of its passes


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network.")] = Architecture.resnet20,
    images: Annotated[int, typer.Option(min=1, help="Images of a step.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of which the median is taken.")] = 5,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Print Markdown tables of phases, kinds of layers and attacks."""
    import torch

    from rs.params import read_params
    from rs.runtime.device import device_named
    from rs.training.recipe import training_recipe

    torch.set_num_threads(1)
    device = device_named("cpu")  # keeps memory, as the stages do
    method = training_recipe(read_params(params), "cifar10", "advmacer", SIGMA).method
    (model, _), data = network(architecture, device), random_images(architecture.shape, images)
    x, y = torch.from_numpy(data.images).float() / 255, torch.from_numpy(data.labels).long()
    trainer = own_trainer(model, method, data, device, "folded", "float32", len(x))
    ways = attacks(trainer.model, x.shape[1:])
    for way in ways.values():
        step(trainer, way, method, x, y)
    made = [{name: step(trainer, way, method, x, y) for name, way in ways.items()} for _ in range(rounds)]
    print("\n".join(table(made)))
    print(
        f"\nprocessor ms of a step, {architecture.value}, {images} images x {method.draws} draws, {method.steps} steps"
    )
    print(f"of attack, medians of {rounds} rounds; faster: than the plain attack, of the same round\n")
    print("\n".join(kinds(lambda: step(trainer, ways["folded, float32"], method, x, y))))
    print(f"\nshares of a step whose attack is folded, in float32\n{machine()}")


def attacks(model: nn.Module, shape: torch.Size) -> dict[str, Way]:
    """Networks of attacks that share the weights of the model."""
    from rs.training.attack_backend import frozen

    folded = frozen(model, shape)
    return {
        "plain, float32": Way(model, "float32"),
        "folded, float32": Way(folded, "float32"),
        "folded, bfloat16": Way(folded, "bfloat16"),
    }


def step(trainer: Trainer, way: Way, method: AdvMacer, x: Tensor, y: Tensor) -> Phases:
    """Take one step; processor seconds of each phase."""
    import torch

    from rs.methods.macer_objective import macer_objective
    from rs.smoothing.attack import evaluating, forward, objective, project, unit
    from rs.smoothing.classifier import autocast
    from rs.smoothing.noise import draw

    seconds: Phases = defaultdict(float)
    since = time.process_time()

    def done(phase: str) -> None:
        nonlocal since
        now = time.process_time()
        seconds[phase] += now - since
        since = now

    rng = torch.Generator().manual_seed(0)
    noise = draw(x, method.draws, SIGMA, rng)
    done("noise")
    u = torch.zeros_like(x)
    with evaluating(trainer.model):
        for _ in range(method.steps):
            with autocast(x.device, way.precision):
                point = (x + u).requires_grad_()
                loss = objective(forward(way.attacked, point, noise), y, method.beta_attack).sum()
            done("attack, forward")
            g = torch.autograd.grad(loss, point)[0]
            done("attack, backward")
            u = u + 2 * method.epsilon / method.steps * unit(g, rng)
            u = project((x + u).clamp(0.0, 1.0) - x, method.epsilon)
            done("attack, moves")
    trainer.model.train()
    logits = forward(trainer.model, x + u, noise)
    made = macer_objective(logits, y, sigma=SIGMA, lam=method.lam, gamma=method.gamma, beta=method.beta)
    done("loss, forward")
    trainer.model.zero_grad(set_to_none=True)
    made.loss.backward()
    done("loss, backward")
    trainer._sgd_step(1e-4)
    done("optimiser")
    return seconds


def table(made: list[Mapping[str, Phases]]) -> Iterator[str]:
    """Lines of the table of phases, one row for each way to compute the attack."""
    phases = [*next(iter(made[0].values()))]
    first = next(iter(made[0]))
    yield f"| attack | {' | '.join(phases)} | step | faster |"
    yield f"|---|{'---:|' * (len(phases) + 2)}"
    for name in made[0]:
        cells = [f"{1e3 * median(one[name][phase] for one in made):,.0f}" for phase in phases]
        whole = f"{1e3 * median(sum(one[name].values()) for one in made):,.0f}"
        ratio = median(sum(one[first].values()) / sum(one[name].values()) for one in made)
        yield f"| {name} | {' | '.join(cells)} | {whole} | {ratio:.2f} |"


def kinds(way: Callable[[], object]) -> Iterator[str]:
    """Lines of the table of layers: shares of the processor's time by the profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        way()
    found: dict[str, float] = defaultdict(float)
    for event in profiler.key_averages():
        kind = next((kind for kind, parts in KINDS.items() if any(part in event.key for part in parts)), "the rest")
        found[kind] += event.self_cpu_time_total
    total = sum(found.values())
    yield "| operations | share |"
    yield "|---|---:|"
    for kind, value in sorted(found.items(), key=lambda one: -one[1]):
        yield f"| {kind} | {value / total:.1%} |"


if __name__ == "__main__":
    run(main)
