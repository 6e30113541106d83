"""The arithmetic of a process: the processor's own, or the same bytes on every x86-64 machine.

Sums of floats depend on their order, and libraries choose the order, and the vector instructions,
by the processor they meet. ``portable`` pins each library that computes here to a choice that all
x86-64 processors since 2013 (AVX2) can follow, with one thread. It must be made before the
libraries are loaded, which read these variables once.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, Literal

from rs.errors import InputError
from rs.recipes import load_section, merge

Arithmetic = Literal["portable", "native"]

PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own loops
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # convolutions
    # torch's matrix products: of MKL's branches the one that is not for Intel alone
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",  # matrix products and decompositions of NumPy and SciPy
    # KiB; blocks of a product, and so the order of its sums, may follow the cache
    "OPENBLAS_L2_SIZE": "512",
    # NumPy before 2.4, and since; unknown names are ignored
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL "
    "AVX512_SPR X86_V4",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""The environment of portable arithmetic."""

LIBRARIES = ("numpy", "torch")


def environment_of(values: dict[str, Any], dataset: str) -> dict[str, str]:
    """Return the environment variables that give a new process the arithmetic of a recipe."""
    if recipe_arithmetic(values, dataset) == "portable" and is_x86_64():
        return PORTABLE
    return {}


def is_x86_64() -> bool:
    """Return whether this machine can have portable arithmetic."""
    return platform.machine().lower() in ("x86_64", "amd64")


def set_arithmetic(arithmetic: Arithmetic, where: str) -> None:
    """Make the arithmetic of this process ``arithmetic``.

    On other processors than x86-64 there is no portable arithmetic; a warning says so, and what is
    made says ``native`` of itself.

    Args:
        arithmetic: The arithmetic; native changes nothing.
        where: What says so, as users know it.
    Raises:
        InputError: If the libraries are loaded already.
    """
    if arithmetic == "native" or current() == "portable":
        return
    if not is_x86_64():
        print(f"warning: {where} is portable on x86-64 only; here it is native", file=sys.stderr)
        return
    loaded = [name for name in LIBRARIES if name in sys.modules]
    if loaded:
        raise InputError(
            f"{where} must be chosen before {' and '.join(loaded)} are loaded, as a separate "
            "command does; set it to native, or start Python with the variables of "
            "rs.runtime.arithmetic.PORTABLE"
        )
    os.environ.update(PORTABLE)


def recipe_arithmetic(values: dict[str, Any], dataset: str) -> Arithmetic:
    """Return ``recipes.DATASET.arithmetic``.

    Raises:
        InputError: If the recipe does not say it, or asks for portable arithmetic together with a
            compiled network or bfloat16.
    """
    where = f"recipes.{dataset}.arithmetic"
    arithmetic = load_section(values, where, Arithmetic)
    if arithmetic == "portable":
        _check_portable(values, dataset)
    return arithmetic


def current() -> Arithmetic:
    """Return the arithmetic of this process, by its environment."""
    return "portable" if PORTABLE.items() <= os.environ.items() else "native"


def _check_portable(values: dict[str, Any], dataset: str) -> None:
    """Refuse settings of a recipe whose meaning depends on the processor."""
    recipe = f"recipes.{dataset}"
    sections, _ = merge(values, recipe, optional=True)
    trainings = [f"{recipe}.{name}.training" for name in sections]
    for key in (f"{recipe}.certify", *trainings):
        merged, origins = merge(values, key, optional=True)
        for name, value in (("engine", "compiled"), ("precision", "bfloat16")):
            setting = merged.get(name)
            by_sigma = setting.values() if isinstance(setting, dict) else [setting]
            if value in by_sigma:
                raise InputError(
                    f"params.yaml: {origins[name]}.{name} = {value} depends on the processor, but "
                    f"{recipe}.arithmetic is portable; make it folded, plain or float32, or the "
                    "arithmetic native"
                )
