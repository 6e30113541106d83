"""The training methods, one file each; this module imports none of them."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from rs.errors import check_choice

if TYPE_CHECKING:
    from rs.methods.base import Method

METHODS = {
    "gaussian": "rs.methods.gaussian:Gaussian",
    "stability": "rs.methods.stability:Stability",
    "smoothadv": "rs.methods.smoothadv:SmoothAdv",
    "macer": "rs.methods.macer:Macer",
    "consistency": "rs.methods.consistency:Consistency",
    "smoothmix": "rs.methods.smoothmix:SmoothMix",
    "advmacer": "rs.methods.advmacer:AdvMacer",
    "cat-rs": "rs.methods.cat_rs:CatRs",
    "hard-drop": "rs.methods.hard_drop:HardDrop",
}
"""From the name of a method to the dataclass of its hyperparameters, ``module:Class``."""

DENOISERS = {
    "denoiser-mse": "rs.methods.denoiser:DenoiserMse",
    "denoiser-stability": "rs.methods.denoiser:DenoiserStability",
}
"""The methods that train a denoiser before a frozen classifier, in the same form."""

EVERY_METHOD = METHODS | DENOISERS

DEFAULT_METHOD = "advmacer"
"""The method of the largest ACR after one epoch (``benchmarks/results/own-network.md``)."""


def method_class(name: str) -> type[Method]:
    """Import the dataclass of a method's hyperparameters.

    Raises:
        InputError: If the method is unknown; lists the known ones.
    """
    check_choice("the method", name, tuple(EVERY_METHOD))
    method: type[Method] = resolve_name(EVERY_METHOD[name])
    return method
