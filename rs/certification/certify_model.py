"""One cell of the pipeline: certify a model, of ours or of the user's, into its row file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from rs import params
from rs.certification import certify_images, load
from rs.data import images as data
from rs.data.format import Images
from rs.models import checkpoint
from rs.models.backend import Engine
from rs.runtime import arithmetic, code_fingerprint, processes
from rs.runtime.device import suit_threads
from rs.smoothing.settings import CertificationSettings
from rs.smoothing.stopping import Stop
from rs.storage import certificate_rows
from rs.study.subset import select, subset_name


def certification_settings(
    values: dict[str, Any], dataset: str, chosen: dict[str, Any] | None = None
) -> CertificationSettings:
    """Read ``recipes.DATASET.certify``; values of ``chosen`` that are not ``None`` take the place of its own."""
    where = f"recipes.{dataset}.certify"
    merged, origins = params.merge(values, *params.layers(where))
    merged |= {key: value for key, value in (chosen or {}).items() if value is not None}
    if merged.get("stop") is not None:
        merged["stop"] = params.check(Stop, merged["stop"], f"{where}.stop")
    return params.check(CertificationSettings, merged, where, origins)


def certify_cell(
    model: str,
    folder: Path,
    settings: CertificationSettings,
    *,
    sigma: float | None,
    device: torch.device,
    batch: int | None,
    out: Path,
) -> None:
    """Certify a model on the test split of the data set in ``folder``; the rows go to ``out``.

    Args:
        model: A model folder, the ``*.json`` of an ensemble, or ``module:function`` that returns an ``nn.Module``.
        sigma: Noise of the certificate; ``None`` takes that of the model folder.
    """
    images = data.load(folder, "test")
    suit_threads(images.meta.shape)
    loaded = load.load(model, images.meta)
    how = {"precision": settings.precision, "engine": settings.engine}
    smoothed = loaded.smoothed(sigma, device=device, batch=batch, **how)
    sources = {"sources": loaded.sources} if loaded.sources else {}
    who = {"model": model, "classifier": checkpoint.fingerprint(loaded.module), **sources, "scope": loaded.scope}
    identity = who | circumstances(images, settings, smoothed.sigma, device, smoothed.engine, "stages/certify.py")
    certify_images.certify_to(out, smoothed, images, select(len(images), settings.subset), settings, device, identity)
    if settings.stop is not None and processes.place()[0] == 0:
        print(certify_images.summary(certificate_rows.read(out)))


def circumstances(
    images: Images, settings: CertificationSettings, sigma: float, device: torch.device, engine: Engine, entry: str
) -> dict[str, Any]:
    """What rows depend on beside the classifier; part of their sidecar.

    Args:
        engine: The one that runs, which may not be the one that ``settings`` asks for.
        entry: The module that makes them.
    """
    return {
        "dataset": images.meta.name,
        "classes": len(images.meta.classes),
        "images": images.fingerprint,
        "sigma": sigma,
        **asdict(settings),
        "engine": engine,
        "subset": subset_name(settings.subset),
        "device": device.type,
        "arithmetic": arithmetic.current(),
        "rows": len(select(len(images), settings.subset)),
        "code": code_fingerprint.version(entry),
        "versions": checkpoint.versions(),
    }
