"""The diagrams of the pages: the stages of dvc.yaml, and the packages of rs with their imports."""

from __future__ import annotations

import ast
from pathlib import Path

import networkx as nx
from dvc.repo import Repo
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path as Curve

Place = tuple[float, float]
Bend = tuple[str, str, int]
"""The place where an arrow passes a layer of boxes: both of its ends, and the layer."""

WIDTH = 1.5
HEIGHT = 0.42
"""Size of a box, in inches."""

GAP = 0.25
"""Distance between two boxes of a layer."""

LAYER = 0.8
"""Distance from the middle of a layer to the middle of the next."""

ROUNDS = 8
"""How often the boxes of all layers are put in the order of their neighbors."""


def stages(root: Path) -> nx.DiGraph:
    """Return the stages of ``dvc.yaml``, as DVC reads it: an arrow leads to a stage that reads
    outputs.
    """
    graph = nx.DiGraph()
    with Repo(str(root)) as repo:
        for reader, cell in repo.index.graph.edges:
            graph.add_edge(stage_of(cell.addressing), stage_of(reader.addressing))
    return nx.transitive_reduction(graph)


def stage_of(cell: str) -> str:
    """Return the stage of a cell, such as train for train@digits-macer-0.5-0."""
    return cell.partition("@")[0]


def packages(root: Path) -> nx.DiGraph:
    """Return the packages of ``rs``: an arrow leads to a package that is imported."""
    names = {path.parent.name for path in (root / "rs").glob("*/__init__.py")}
    graph = nx.DiGraph()
    for name in names:
        for path in (root / "rs" / name).glob("**/*.py"):
            for imported in imports(path) & names - {name}:
                graph.add_edge(name, imported)
    return nx.transitive_reduction(graph)


def imports(path: Path) -> set[str]:
    """Return the names right below ``rs`` that a module imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        top, *rest = str(node.module).split(".")
        if top == "rs" and rest:
            names.add(rest[0])
        elif top == "rs":
            names |= {alias.name for alias in node.names}
    return names


def draw(graph: nx.DiGraph) -> Figure:
    """Draw a graph without cycles from top to bottom, on white, so that any page may show it."""
    bent, layers = with_bends(graph)
    places = arrange(bent, layers)
    columns = [x for x, _ in places.values()]
    left = min(columns) - (WIDTH + GAP) / 2
    right = max(columns) + (WIDTH + GAP) / 2
    top = -(HEIGHT + GAP) / 2
    bottom = top + (len(layers) - 1) * LAYER + HEIGHT + GAP
    figure = Figure(figsize=(right - left, bottom - top), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.axis("off")
    for tail, head in sorted(graph.edges):
        bends = [bend for bend in bent if bend[:2] == (tail, head)]
        draw_arrow(axes, f"{tail}-to-{head}", [places[node] for node in (tail, *bends, head)])
    for name in sorted(graph):
        draw_box(axes, name, places[name])
    return figure


def with_bends(graph: nx.DiGraph) -> tuple[nx.DiGraph, list[list[str | Bend]]]:
    """Return the graph with a bend in each layer that an arrow passes; and the layers."""
    layers = [sorted(layer) for layer in nx.topological_generations(graph)]
    layer_of = {}
    for number, layer in enumerate(layers):
        layer_of |= dict.fromkeys(layer, number)
    bent = nx.DiGraph()
    for tail, head in sorted(graph.edges):
        bends = []
        for number in range(layer_of[tail] + 1, layer_of[head]):
            bends.append((tail, head, number))
            layers[number].append(bends[-1])
        nx.add_path(bent, [tail, *bends, head])
    return bent, layers


def arrange(bent: nx.DiGraph, layers: list[list[str | Bend]]) -> dict[str | Bend, Place]:
    """Return a place for each box and bend, those with common neighbors next to each other."""
    places: dict[str | Bend, Place] = {}
    for number, layer in enumerate(layers):
        for position, node in enumerate(layer):
            places[node] = (position, number * LAYER)
    for turn in range(ROUNDS):
        downward = turn % 2 == 0
        neighbors = bent.pred if downward else bent.succ
        numbers = range(len(layers))
        for number in numbers if downward else reversed(numbers):
            layer = layers[number]
            wish = {}
            for node in layer:
                around = neighbors[node] or [node]
                columns = [places[other][0] for other in around]
                wish[node] = sum(columns) / len(columns)
            layer.sort(key=wish.__getitem__)
            for node, x in zip(layer, columns_of(layer), strict=True):
                places[node] = (x, number * LAYER)
    return places


def columns_of(layer: list[str | Bend]) -> list[float]:
    """Return the middles of boxes and bends from left to right, around 0."""
    columns = []
    right = 0.0
    for node in layer:
        width = WIDTH if isinstance(node, str) else 0.0
        columns.append(right + width / 2)
        right += width + GAP
    return [column - (right - GAP) / 2 for column in columns]


def draw_box(axes: Axes, name: str, place: Place) -> None:
    """Draw a box with its name."""
    x, y = place
    corner = (x - WIDTH / 2, y - HEIGHT / 2)
    axes.add_patch(Rectangle(corner, WIDTH, HEIGHT, facecolor="#eef4f9", edgecolor="#0072b2"))
    axes.text(x, y, name, ha="center", va="center", fontsize=10, color="#1a1a1a")


def draw_arrow(axes: Axes, identifier: str, places: list[Place]) -> None:
    """Draw an arrow from below the first box, past the boxes at its bends, to above the last."""
    first, *bends, last = places
    vertices = [below(first)]
    codes = [Curve.MOVETO]
    for place in [*bends, last]:
        start = vertices[-1]
        end = above(place)
        middle = (start[1] + end[1]) / 2
        vertices += [(start[0], middle), (end[0], middle), end]
        codes += [Curve.CURVE4] * 3
        if place is not last:
            vertices.append(below(place))
            codes.append(Curve.LINETO)
    arrow = FancyArrowPatch(
        path=Curve(vertices, codes), arrowstyle="-|>", mutation_scale=10, color="#555555"
    )
    arrow.set_gid(identifier)
    axes.add_patch(arrow)


def above(place: Place) -> Place:
    """Return the middle of the upper edge of a box."""
    x, y = place
    return x, y - HEIGHT / 2


def below(place: Place) -> Place:
    """Return the middle of the lower edge of a box."""
    x, y = place
    return x, y + HEIGHT / 2
