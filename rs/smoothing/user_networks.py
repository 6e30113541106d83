"""Networks of users: the only module that imports them, and registers them for model folders.

When ``import_network`` runs:

- ``rs.certification.load.load``, which is also ``rs.load``: for ``--network``, before the weights
  of a model folder are read, and for MODEL if it names a function.
- ``rs train``: after the options are checked, before ``--data`` is read. With ``--images`` it also
  runs before that, to learn which pictures the network takes.
- Commands that read a recipe with ``model.network``: while they read it
  (``rs.command_line.shell.parameters``), or to take the fingerprint of its code.
- ``rs combine``: to copy the network of a function next to the ensemble.
- Whenever a network with a registered name is built, so a function may run several times.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path

import torch
from torch import nn

from rs.errors import InputError, did_you_mean
from rs.models import architectures, zoo
from rs.models.backend import copy_network
from rs.models.fingerprint import model_fingerprint, sources
from rs.runtime import code_fingerprint
from rs.runtime.streams import seeded
from rs.smoothing.inputs import LogitsOnly, TwoLogits, evaluating, logits_of, user_code

MODEL_KINDS = (
    "the model must be a model folder, zoo:NAME, an ensemble *.json or an importable "
    "module:function"
)
"""What a model can be, for messages."""

NetworkSource = str | Callable[[], nn.Module]
"""A function without arguments that returns an ``nn.Module``, or ``package.module:function``."""


def register_network(network: NetworkSource, name: str | None = None) -> str:
    """Register a user's network, so that model folders of it can be loaded; return its name.

    A model folder names its network and never imports it, so only code that the user names runs.

    Args:
        network: The function, its name, or an ``nn.Module``, copies of which are built.
        name: What folders call it; ``None`` for its own name, of an ``nn.Module`` its class.
    Raises:
        InputError: If there is no such function, or what it returns is no ``nn.Module``.
    """
    if isinstance(network, nn.Module):
        original = network

        def build_copy() -> nn.Module:
            with user_code("network must be one that can be copied, or a function that builds it"):
                return copy_network(original)

        return register_network(build_copy, name or class_name(network))
    if isinstance(network, str):
        own_name = network
    else:
        own_name = f"{network.__module__}:{network.__qualname__}"

    def build() -> nn.Module:
        if isinstance(network, str):
            imported = import_network(network)
            with user_code(f"{network} must return a network that can be copied"):
                return copy_network(imported)
        return _built(network, own_name)

    modules = own_modules(own_name, build()) - {"__main__"}
    code = {name: _code_hash(content) for name, content in sources(modules).items()}
    registered = name or own_name
    architectures.ARCHITECTURES[registered] = lambda shape, _: _with_plain_logits(
        build(), registered, shape
    )
    architectures.USER_NETWORKS[registered] = code
    return registered


def _code_hash(content: bytes) -> str:
    """Return the hash of a file's syntax tree, or of its bytes if it is not Python."""
    try:
        return code_fingerprint.digest(content)
    except (SyntaxError, ValueError):
        return hashlib.sha256(content).hexdigest()


def register_networks(networks: NetworkSource, in_card: str | None = None) -> None:
    """Register a function, or networks by their names, with commas between them.

    Args:
        networks: As for :func:`register_network`.
        in_card: Name of the network in the card of a model. A function that is given is registered
            by it. ``rs.train`` of a network, not of a function, writes its class; a named function
            that builds one of this class is registered by that name too.
    """
    if not isinstance(networks, str):
        register_network(networks, in_card)
        return
    for name in networks.split(","):
        registered = register_network(name)
        if in_card and registered != in_card and class_name(import_network(name)) == in_card:
            register_network(name, in_card)


def network_hashes(name: str) -> dict[str, str]:
    """Return the SHA-256 of the source files of a network, and of the network as built."""
    contents = sources([name.partition(":")[0]])
    hashes = {module: hashlib.sha256(content).hexdigest() for module, content in contents.items()}
    with seeded(0):  # the function may read weights from a file, which its source does not show
        hashes["built"] = model_fingerprint(import_network(name))
    return hashes


def class_name(network: nn.Module) -> str:
    """Return ``package.module:class`` of a network."""
    return f"{type(network).__module__}:{type(network).__qualname__}"


def own_modules(function: str, network: nn.Module) -> set[str]:
    """Return the modules that a user's function and its network are written in.

    Modules of torch and torchvision are left out.
    """
    owners = {function.partition(":")[0]}
    for module in network.modules():
        owners.add(type(module).__module__)
    return {name for name in owners if name.partition(".")[0] not in ("torch", "torchvision")}


def _with_plain_logits(network: nn.Module, name: str, shape: Sequence[int]) -> nn.Module:
    """Return a network whose output is a tensor (N, K), which can be traced; itself if it is so."""
    with user_code(f"{name} must take images of shape {tuple(shape)}"), torch.no_grad():
        output = network.cpu().eval()(torch.zeros(1, *shape, dtype=torch.float32, device="cpu"))
        logits_of(output)  # refuses anything else
    if hasattr(output, "logits"):
        return LogitsOnly(network)
    if output.shape == (1, 1):
        return TwoLogits(network)
    return network


def takes(network: nn.Module, shape: Sequence[int]) -> bool:
    """Return whether a network runs on an image of this shape.

    It is run only if its first convolution has other channels: it may convert colors before that.
    """
    convolutions = (module for module in network.modules() if isinstance(module, nn.Conv2d))
    first = next(convolutions, None)
    if first is None or first.in_channels == shape[0]:
        return True
    try:
        with user_code("the network must take the pictures"), torch.no_grad(), evaluating(network):
            network(torch.zeros(1, *shape))
    except InputError:
        return False
    return True


def is_importable(name: str) -> bool:
    """Return whether a model is named as ``package.module:function``."""
    return ":" in name and not name.startswith(zoo.PREFIX) and not Path(name).exists()


def import_network(name: str) -> nn.Module:
    """Import ``module:name`` (the current folder included): a model, or what a function returns.

    Raises:
        InputError: If there is no such module or function, or it returns no ``nn.Module``.
    """
    module_name, _, function = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    must = f"{MODEL_KINDS}, got {name!r}"
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").replace("/", ".")
        raise InputError(f"{must}; leave out .py: {dotted}:{function}")
    words = [*module_name.split("."), function]
    if not all(word.isidentifier() for word in words):
        raise InputError(f"{must}; write it as package.module:function")
    with user_code(must), chdir("."):  # whose import may change the folder
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise InputError(
                f"{must}, but: {error}; correct its name, or what it imports"
            ) from error
    build = getattr(module, function, None)
    if isinstance(build, nn.Module):
        return build
    if not callable(build):
        functions = [name for name, value in vars(module).items() if callable(value)]
        raise InputError(
            f"{must}, but {module_name} has no function "
            f"{function}{did_you_mean(function, functions)}"
        )
    return _built(build, name)


def _built(build: Callable[[], nn.Module], name: str) -> nn.Module:
    """Return the network that a user's function builds."""
    try:
        inspect.signature(build).bind()
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a function that needs no argument: {error}") from error
    with user_code(f"{name} must return an nn.Module"), chdir("."):  # as above
        model = build()
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{name} must return an nn.Module that takes images in [0, 1], got "
            f"{type(model).__name__}"
        )
    return model
