"""Tables and the picture of the networks that one GPU trained in minutes, and of the zoo."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.page_tables.cells import NOISE, Lines, acr_cell, gain_cell
from benchmarks.page_tables.cifar10 import published_acrs
from benchmarks.page_tables.committed import LEVELS, Committed, of_file
from rs.command_line.zoo import ROWS
from rs.models.zoo import zoo_names
from rs.reporting.tables.formatting import EMPTY, bold, signed
from rs.statistics.metrics import certified_accuracy
from rs.storage import certificate_rows


def paper_scale_card(committed: Committed, level: str) -> dict[str, Any]:
    """Return the card of the network of a noise level that one GPU trained."""
    return json.loads((committed.root / f"rs/zoo/cifar10-advmacer-{level}/model.json").read_text())


def paper_scale_rows(committed: Committed, level: str) -> pd.DataFrame:
    """Return the log of that network's certificates, with 100,000 samples per image."""
    path = committed.root / f"benchmarks/results/paper-scale/advmacer-{level}.tsv"
    return pd.read_csv(path, sep="\t")


def paper_scale(committed: Committed) -> Lines:
    """Return the networks that one GPU trained in minutes, next to the paper's ACRs."""
    lines = [
        ["σ", "seconds of training", "epochs", "test images", "ACR", "clean accuracy", "paper: ACR"]
    ]
    for level in LEVELS:
        rows = paper_scale_rows(committed, level)
        card = paper_scale_card(committed, level)
        lines.append(
            [
                level,
                f"{card['training']['seconds']:.0f}",
                str(card["epochs"]),
                str(len(rows)),
                mean_cell(rows["radius"] * rows["correct"]),
                f"{rows['correct'].mean():.3f}",
                f"{published_acrs(level)['advmacer']:.3f}",
            ]
        )
    return lines


def draw(committed: Committed) -> Figure:
    """Draw certified accuracy by radius of these networks: a line per noise level."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for level, color in zip(LEVELS, ("#0072b2", "#d55e00", "#009e73"), strict=True):
        rows = paper_scale_rows(committed, level)
        radii = np.linspace(0, 1.02 * rows["radius"].max(), 500)
        axes.step(
            radii,
            certified_accuracy(rows, radii),
            where="pre",
            color=color,
            label=f"σ = {level}",
        )
    axes.set_xlabel("certified ℓ₂ radius")
    axes.set_ylabel("certified accuracy")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def mean_cell(values: pd.Series) -> str:
    """Return a mean with its standard error."""
    return f"{values.mean():.3f} ± {values.sem():.3f}"


def paper_scale_differences(committed: Committed) -> Lines:
    """Return the differences of these networks from public logs of ResNet-110."""
    path = committed.root / "benchmarks/results/paper-scale/differences.jsonl"
    gains = {}
    for text in path.read_text().splitlines():
        comparison = json.loads(text)
        gains[comparison["b"]["file"]] = comparison["acr"]
    lines = [["σ", "minus SmoothAdv", "minus Consistency", "minus CAT-RS"]]
    for level in LEVELS:
        line = [level]
        for method in ("smoothadv", "consistency", "cat-rs"):
            gain = gains[f"{method}-{level}.log"]
            cell = f"{signed(gain['difference'], 3)} ± {gain['error_images']:.3f}"
            line.append(f"{cell} tie" if gain["tie"] else cell)
        lines.append(line)
    return lines


def gpu_methods(committed: Committed) -> Lines:
    """Return five methods that one GPU trained for less than a minute each, with three seeds."""
    titles = ["method", "seconds", "epochs", "ACR, validation", "ACR, test", "minus gaussian"]
    lines = [[*titles, "clean accuracy"]]
    logs = committed.rows / "cifar10-gpu/logs/cifar10-gpu/0.5"
    for method in ("gaussian", "macer", "smoothadv", "consistency", "advmacer"):
        histories = [pd.read_csv(logs / f"{method}/{seed}/history.csv") for seed in range(3)]
        last = pd.Series([history["acr"].iloc[-1] for history in histories])
        provenance = json.loads((logs / f"{method}/0/provenance.json").read_text())
        seconds = f"{provenance['training_seconds']:.0f}"
        epochs = str(len(histories[0]))
        cells = gpu_test_cells(committed, f"{method}-0")
        lines.append([method, seconds, epochs, mean_cell(last), *cells])
    ensembles = {
        "consistency x3": "consistency-0-1-2",
        "advmacer x3": "advmacer-0-1-2",
        "advmacer x1 + consistency x2": "advmacer-0+consistency-1-2",
    }
    for name, slug in ensembles.items():
        cells = gpu_test_cells(committed, f"pool/{slug}.average")
        lines.append([name, EMPTY, EMPTY, EMPTY, *cells])
    return lines


def gpu_test_cells(committed: Committed, name: str) -> list[str]:
    """Return ACR, difference from gaussian, and clean accuracy on the test images."""
    folder = committed.rows / "cifar10-gpu/results/cifar10-gpu/0.5"
    path = folder / f"{name}.tsv"
    scores = of_file(path)
    gain = EMPTY
    if name != "gaussian-0":
        gain = gain_cell(scores, of_file(folder / "gaussian-0.tsv"))
    accuracy = certificate_rows.read_rows(path)["correct"].mean()
    return [acr_cell(scores), gain, f"{accuracy:.3f}"]


def accuracy_by_sigma(committed: Committed, *radii: str) -> Lines:
    """Return certified accuracies of the networks of paper scale on the images they all have."""
    logs = [paper_scale_rows(committed, level) for level in LEVELS]
    images = min(len(rows) for rows in logs)
    lines = [["radius", *NOISE]]
    for radius in radii:
        shares = []
        for rows in logs:
            share = certified_accuracy(rows[:images], float(radius))
            shares.append(round(100 * share))
        cells = [bold(f"{share}%", share == max(shares)) for share in shares]
        lines.append([radius, *cells])
    return lines


def zoo(committed: Committed) -> Lines:
    """Return what the rows of the zoo say of its networks."""
    lines = [["network", "test images", "ACR", "certified at 0.25", "at 0.5", "at 1.0", "at 1.5"]]
    folder = committed.root / "rs/zoo"
    for name in zoo_names(folder):
        path = folder / name / ROWS
        rows = certificate_rows.read_rows(path)
        shares = [f"{certified_accuracy(rows, radius):.3f}" for radius in (0.25, 0.5, 1.0, 1.5)]
        lines.append([name, str(len(rows)), acr_cell(of_file(path)), *shares])
    return lines
