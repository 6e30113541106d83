"""The page of a model that is shared: a README.md with a header in YAML, as the Hugging Face hub reads it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML

from rs.data.prepared import data_set_text
from rs.models.checkpoint import ModelCard

BEGINNING = "---\nlibrary_name: rs\n"
"""How a page begins, by which it is recognised."""

TAGS = ("randomized-smoothing", "certified-robustness")

USE = """\
## Use

```python
import rs

smoothed = rs.load("path/of/this/folder").smooth()  # at the noise it was trained with
print(smoothed.certify(image))  # pixels in [0, 1]: a tensor (C, H, W), a NumPy array or a Pillow image
```

The radius is an l2 distance in pixels of [0, 1]. It holds with probability 1 - alpha over the noise of its certificate,
for the smoothed classifier, which is not the network alone.
"""


OTHER = """\
The certificates above with {} are of another network than the one in float32 that these lines run,
and say nothing of it: give `smooth` that engine and precision.
"""

HOW = ("engine", "precision", "noise", "arithmetic", "outputs", "device")
"""What the sidecar of rows says of the network that was certified, and of how."""


def model_page(card: ModelCard, results: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the page of a model.

    Args:
        card: Its description.
        results: Numbers of rows that are of this model, as ``rs.reporting.summaries.summarize_rows`` returns them.
    """
    name = f"{card.method}-{card.dataset}-{card.sigma}-{card.seed}"
    other = [network for about in results if (network := _of_another_network(about))]
    header: dict[str, Any] = {"library_name": "rs", "pipeline_tag": "image-classification", "tags": [*TAGS]}
    if results:
        header["model-index"] = [{"name": name, "results": [_result(card, about) for about in results]}]
    stream = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(header, stream)
    parts = [
        f"---\n{stream.getvalue()}---\n",
        f"# {name}\n",
        _facts(card),
        *(_table(card, about) for about in results),
        USE,
        *[OTHER.format("; ".join(dict.fromkeys(other)))] * bool(other),
    ]
    return "\n".join(parts)


def _facts(card: ModelCard) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    return (
        f"A base classifier for randomized smoothing, to be certified with Gaussian noise.\n\n"
        f"- Classifier of {data_set_text(card.dataset, card.classes, card.shape)}: {', '.join(card.classes[:20])}"
        f"{', ...' if len(card.classes) > 20 else ''}\n"
        f"- Network: {card.architecture}, with its normalisation as first layer\n"
        f"- Training: {card.method}, sigma {card.sigma} in pixels of [0, 1], {card.epochs} epochs, seed {card.seed}\n"
        f"- Made with {versions}, on {card.device}, {card.arithmetic} arithmetic\n"
    )


def _metrics(about: Mapping[str, Any]) -> dict[str, tuple[str, float | None]]:
    """Return type and value of each number, by its name."""
    beyond = {r: share for r, share in about["certified_accuracy"].items() if r != "0"}  # at 0 it is clean accuracy
    at = {f"certified accuracy at {r}": ("accuracy", share) for r, share in beyond.items()}
    return {"ACR": ("acr", about["acr"]), "clean accuracy": ("accuracy", about["clean_accuracy"])} | at


def _result(card: ModelCard, about: Mapping[str, Any]) -> dict[str, Any]:
    metrics = [(name, kind, value) for name, (kind, value) in _metrics(about).items() if value is not None]
    config = ", ".join(filter(None, (_budget(about), _how(about, HOW))))
    return {
        "task": {"type": "image-classification"},
        "dataset": dict.fromkeys(("name", "type"), _dataset(card, about)) | {"config": config},
        "metrics": [{"type": kind, "name": name, "value": value} for name, kind, value in metrics],
    }


def _budget(about: Mapping[str, Any]) -> str:
    numbers = [f"{name} {about[name]}" for name in ("sigma", "n0", "n", "alpha")]
    early = [f"mode {about['mode']}"] * (about["mode"] != "certify")  # a run that stops early makes at most n draws
    return ", ".join([*numbers, str(about["subset"]), *early])


def _how(about: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return what is stated of some properties of the certified network."""
    return ", ".join(f"{name} {about[name]}" for name in names if about.get(name))


def _of_another_network(about: Mapping[str, Any]) -> str:
    """Return engine and precision of rows of another network than this one in float32; nothing of others."""
    same = about.get("engine") != "quantized" and about.get("precision") in (None, "float32")
    return "" if same else _how(about, ("engine", "precision"))


def _dataset(card: ModelCard, about: Mapping[str, Any]) -> str:
    """Return the data set of rows, which need not be that of the training."""
    return str(about["dataset"] or card.dataset)


def _table(card: ModelCard, about: Mapping[str, Any]) -> str:
    error = f" ± {about['standard_error']:.3f}" if about["standard_error"] is not None else ""
    lines = [
        f"| {name} | {value:.3f}{error} |" if kind == "acr" else f"| {name} | {value:.1%} |"
        for name, (kind, value) in _metrics(about).items()
        if value is not None
    ]
    head = f"## {about['images']:,} images of {_dataset(card, about)}: {_budget(about)}\n\n| | |\n|---|---:|\n"
    return (
        head
        + "\n".join(lines)
        + f"\n\nCertified with {_how(about, HOW) or 'not stated how'}. ± is the standard error over images.\n"
    )
