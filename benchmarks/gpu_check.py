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
"""What is checked, and the check: device -> the fault, or nothing."""


def check(name: str) -> Callable[[Check], Check]:
    """Register a check under a name."""

    def register(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return register


def main(device: Annotated[str, typer.Option(help="cuda or cuda:N.")] = "cuda") -> None:
    """Check on a GPU what only a GPU can show; print a table and a verdict."""
    import torch

    from rs.runtime.device import resolve_device

    if not torch.cuda.is_available():
        raise InputError(
            "there must be a CUDA device, but this machine has no CUDA device; nothing was checked"
        )
    gpu = resolve_device(device)
    print("| what | result |\n|---|---|")
    failed = 0
    for name, function in CHECKS.items():
        try:
            fault = function(gpu)
        except Exception as error:  # a check that cannot run has failed; the others still run
            fault = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        result = "passed"
        if fault:
            failed += 1
            result = f"FAILED: {fault}"
        print(f"| {name} | {result} |", flush=True)
    print(f"\n{machine(gpu.type)}")
    if failed:
        print(f"verdict: {failed} of {len(CHECKS)} checks FAILED")
        sys.exit(1)
    print(f"verdict: all {len(CHECKS)} checks passed")


def relative_difference(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference of two tensors of logits, relative to the largest logit."""
    logits = logits.double().cpu()
    expected = expected.double().cpu()
    return float((logits - expected).abs().max() / expected.abs().max())


def beyond_rounding(logits: torch.Tensor, expected: torch.Tensor) -> str:
    """Return by how much logits differ, if it is more than rounding in float32, or nothing."""
    difference = relative_difference(logits, expected)
    if difference <= ROUNDING:
        return ""
    return f"logits differ by {difference:.2g} of the largest"


@check("float32 is not rounded to TF32")
def full_precision(device: torch.device) -> str:
    """Compare a network on the GPU in float32 with the same in float64 on the CPU."""
    import torch

    model, image = network(NETWORK, device)
    with torch.no_grad():
        logits = model(image[None])
        expected = model.cpu().double()(image[None].double().cpu())
    return beyond_rounding(logits, expected)


@check("tf32 rounds, and float32 before and after does not")
def tensor_cores(device: torch.device) -> str:
    """Compare a network in TF32, as it is and compiled, with the same in float64 on the CPU."""
    import torch

    from rs.certification.inference import optimize_for_inference
    from rs.smoothing.classifier import autocast

    model, image = network(NETWORK, device)
    in_float64 = network(NETWORK, torch.device("cpu"))[0].double()
    with torch.no_grad():
        expected = in_float64(image[None].double().cpu())
        for engine in ("plain", "compiled"):
            optimized = optimize_for_inference(model, engine, "tf32", image.shape, device)
            if optimized.engine != engine:
                return "it was not compiled; the warning above says why"
            with autocast(device, optimized.precision):
                logits = optimized.module(image[None]).clone()
            difference = relative_difference(logits, expected)
            if not ROUNDING < difference < TF32_ROUNDING:
                return (
                    f"with engine {engine} logits in tf32 differ by {difference:.2g} of the largest"
                )
            fault = beyond_rounding(model(image[None]), expected)
            if fault:
                return f"after tf32 with engine {engine}, float32 is not float32: {fault}"
    return ""


def is_keyed(
    first: torch.Tensor, again: torch.Tensor, other: torch.Tensor, device: torch.device
) -> bool:
    """Return whether two draws of a key are equal, that of another key differs, on the device."""
    import torch

    on_device = first.device.type == device.type
    return on_device and torch.equal(first, again) and not torch.equal(first, other)


@check("noise is a function of its key")
def noise(device: torch.device) -> str:
    """Draw blocks of noise twice, and one of another key."""
    import torch

    from rs.smoothing.noise import gaussian_block, grid_block

    shape = torch.Size((3, 32, 32))
    for block in (gaussian_block, grid_block):
        first = block(0, shape, SIGMA, 0, 1, device=device)
        again = block(0, shape, SIGMA, 0, 1, device=device)
        other = block(0, shape, SIGMA, 0, 2, device=device)
        if not is_keyed(first, again, other, device):
            return f"{block.__name__} gives other numbers for one key, or the same for two"
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
    if not is_keyed(first, again, other, device):
        return "the generator gives other numbers for one seed, or the same for two"
    return ""


@check("a network compiled with CUDA graphs is the network, in full and in padded batches")
def inference(device: torch.device) -> str:
    """Compare a compiled network with the folded one, on batches one after the other."""
    import torch

    from rs.certification.inference import optimize_for_inference

    model, image = network(NETWORK, device)
    folded = optimize_for_inference(model, "folded", "float32", image.shape, device)
    compiled = optimize_for_inference(model, "compiled", "float32", image.shape, device)
    if compiled.engine != "compiled":
        return "it was not compiled; the warning above says why"
    count = 2 * (compiled.batch or 1) + 7
    images = image + SIGMA * torch.randn(count, *image.shape, device=device)
    with torch.no_grad():
        expected = torch.cat([folded.module(part) for part in images.split(100)])
        return beyond_rounding(compiled.module(images), expected)


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
    images = random_images(NETWORK.shape, 32)
    losses: dict[str, float] = {}
    for engine in ("plain", "compiled"):
        model, _ = network(NETWORK, device)
        trainer = own_trainer(model, method, images, device, engine, "float32", 64)
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
        total = torch.ones(2, device=device)
        objects = ["passed"]
        dist.all_reduce(total)
        dist.broadcast_object_list(objects, device=device)
        if total.tolist() != [1.0, 1.0] or objects != ["passed"]:
            return "the sum or the object is wrong"
        return ""
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    run(main)
