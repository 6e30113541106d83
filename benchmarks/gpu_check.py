"""What only a GPU can show, checked on one: ``python -m benchmarks.gpu_check`` takes a minute and
prints a verdict.

All else is held by ``tests/test_device_placement.py``, which runs every path on a simulated GPU.
Exit code 0: all checks passed; 1: one failed; 2: there is no GPU.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.common import SIGMA, Architecture, machine, network
from rs.command_line.shell import run
from rs.errors import InputError

if TYPE_CHECKING:
    import torch

NETWORK = Architecture.resnet20

ROUNDING = 1e-4
"""Largest difference of logits that counts as float32, of the largest: TF32, with 10 bits, differs
by more.
"""

TF32_ROUNDING = 1e-2
"""Largest difference of logits that counts as rounding to TF32, of the largest."""

Check = Callable[["torch.device"], str]

CHECKS: dict[str, Check] = {}
"""What is checked, and the check: device -> what failed, or nothing."""


def check(what: str) -> Callable[[Check], Check]:
    """Register a check."""

    def registered(function: Check) -> Check:
        CHECKS[what] = function
        return function

    return registered


def main(device: Annotated[str, typer.Option(help="cuda or cuda:N.")] = "cuda") -> None:
    """Check on a GPU what only a GPU can show; print a table and a verdict."""
    import torch

    from rs.runtime.device import resolve_device

    if not torch.cuda.is_available():
        raise InputError(
            "there must be a CUDA device, but this machine has no CUDA device; nothing was checked"
        )
    place = resolve_device(device)
    print("| what | result |\n|---|---|")
    failed = 0
    for what, function in CHECKS.items():
        try:
            said = function(place)
        except Exception as error:  # a check that cannot run has failed; the others still run
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        failed += bool(said)
        print(f"| {what} | {f'FAILED: {said}' if said else 'passed'} |", flush=True)
    print(f"\n{machine(place.type)}")
    verdict = (
        f"{failed} of {len(CHECKS)} checks FAILED" if failed else f"all {len(CHECKS)} checks passed"
    )
    print(f"verdict: {verdict}")
    if failed:
        sys.exit(1)


def apart(one: torch.Tensor, other: torch.Tensor) -> str:
    """What is wrong where two tensors of logits differ by more than rounding in float32; nothing if
    they do not.
    """
    difference = relative_difference(one, other)
    return "" if difference <= ROUNDING else f"logits differ by {difference:.2g} of the largest"


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference of two tensors of logits, of the largest of the second."""
    one, other = one.double().cpu(), other.double().cpu()
    return float((one - other).abs().max() / other.abs().max())


@check("float32 is not rounded to TF32")
def full_precision(device: torch.device) -> str:
    """Compare a network on the GPU in float32 with the same in float64 on the CPU."""
    import torch

    model, x = network(NETWORK, device)
    with torch.no_grad():
        there = model(x[None])
        return apart(there, model.cpu().double()(x[None].cpu().double()))


@check("tf32 rounds, and float32 before and after does not")
def tensor_cores(device: torch.device) -> str:
    """Compare a network in TF32, as it is and compiled, with the same in float64 on the CPU."""
    import torch

    from rs.certification.inference import optimize_for_inference
    from rs.smoothing.classifier import autocast

    model, x = network(NETWORK, device)
    exact = network(NETWORK, torch.device("cpu"))[0].double()
    with torch.no_grad():
        expected = exact(x[None].double().cpu())
        for engine in ("plain", "compiled"):
            made = optimize_for_inference(model, engine, "tf32", x.shape, device)
            if made.engine != engine:
                return "it was not compiled; the warning above says why"
            with autocast(device, made.precision):
                rounded = made.module(x[None]).clone()
            difference = relative_difference(rounded, expected)
            if not ROUNDING < difference < TF32_ROUNDING:
                return (
                    f"with engine {engine} logits in tf32 differ by {difference:.2g} of the largest"
                )
            if said := apart(model(x[None]), expected):
                return f"after tf32 with engine {engine}, float32 is not float32: {said}"
    return ""


@check("noise is a function of its key")
def noise(device: torch.device) -> str:
    """Draw blocks of noise twice, and one of another key."""
    import torch

    from rs.smoothing.noise import gaussian_block, grid_block

    for drawn in (gaussian_block, grid_block):
        first, again, other = (
            drawn(0, torch.Size((3, 32, 32)), SIGMA, 0, k, device=device) for k in (1, 1, 2)
        )
        if (
            first.device.type != device.type
            or not torch.equal(first, again)
            or torch.equal(first, other)
        ):
            return f"{drawn.__name__} gives other numbers for one key, or the same for two"
    return ""


@check("layers draw the same numbers for a seed, and the generator is restored")
def layers(device: torch.device) -> str:
    """Draw from the global generator of the GPU under one seed twice, the second time around
    another seed.
    """
    import torch

    from rs.runtime.streams import seeded

    with seeded(1, device):
        first = torch.rand(1000, device=device)
    with seeded(1, device):
        with seeded(2, device):
            other = torch.rand(1000, device=device)
        again = torch.rand(1000, device=device)
    if (
        first.device.type != device.type
        or not torch.equal(first, again)
        or torch.equal(first, other)
    ):
        return "the generator gives other numbers for one seed, or the same for two"
    return ""


@check("a network compiled with CUDA graphs is the network, in full and in padded batches")
def inference(device: torch.device) -> str:
    """Compare a compiled network with the folded one, on batches one after the other."""
    import torch

    from rs.certification.inference import optimize_for_inference

    model, x = network(NETWORK, device)
    made = {
        engine: optimize_for_inference(model, engine, "float32", x.shape, device)
        for engine in ("folded", "compiled")
    }
    if made["compiled"].engine != "compiled":
        return "it was not compiled; the warning above says why"
    batch = made["compiled"].batch or 1
    images = x + SIGMA * torch.randn(2 * batch + 7, *x.shape, device=device)
    with torch.no_grad():
        return apart(
            made["compiled"].module(images),
            torch.cat([made["folded"].module(p) for p in images.split(100)]),
        )


@check("a compiled training step is the step")
def training(device: torch.device) -> str:
    """Compare the loss of compiled steps, which replay their graphs, with that of plain ones.

    Rounding grows from step to step, but the images of a graph that was not replayed, or of another
    step, are far off.
    """
    from pathlib import Path

    from benchmarks.steps import own_epoch, own_trainer, random_images
    from rs.params import read_params
    from rs.training.recipe import training_recipe

    method = training_recipe(read_params(Path("params.yaml")), "cifar10", "advmacer", SIGMA).method
    data = random_images(NETWORK.shape, 32)
    losses: dict[str, float] = {}
    for engine in ("plain", "compiled"):
        trainer = own_trainer(
            network(NETWORK, device)[0], method, data, device, engine, "float32", 64
        )
        own_epoch(trainer)()
        losses[engine] = trainer.progress.history[-1]["loss"]
    difference = abs(losses["compiled"] - losses["plain"]) / abs(losses["plain"])
    return "" if difference <= 0.01 else f"the loss of an epoch differs by {difference:.2%}"


@check("processes on GPUs find each other by NCCL")
def nccl(device: torch.device) -> str:
    """Sum a tensor, and pass an object on, in a group of this process alone."""
    import torch
    import torch.distributed as dist

    with socket.socket() as free:
        free.bind(("localhost", 0))
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
    dist.init_process_group("nccl", rank=0, world_size=1)
    try:
        total, passed = torch.ones(2, device=device), ["passed"]
        dist.all_reduce(total)
        dist.broadcast_object_list(passed, device=device)
        return "" if total.tolist() == [1.0, 1.0] and passed == ["passed"] else "the sum is wrong"
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    run(main)
