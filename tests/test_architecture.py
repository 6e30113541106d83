"""The pictures of docs/architecture.md and docs/pipeline.md show the packages and the pipeline as
they are.
"""

import re
from itertools import product

import yaml

from tests.support.helpers import ROOT
from tests.test_imports import MAY_IMPORT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def drawn(page: str) -> set[tuple[str, str]]:
    """The arrows of the picture of a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"```mermaid\n(.*?)```", text, flags=re.S)
    return set(re.findall(r"(\w+) --> (\w+)", block))


def reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows of a graph without cycles that do not follow from others."""
    nodes = {node for edge in edges for node in edge}
    closure = set(edges)
    for middle, start, end in product(nodes, repeat=3):
        if (start, middle) in closure and (middle, end) in closure:
            closure.add((start, end))
    return {
        (a, b) for a, b in edges if not any((a, c) in closure and (c, b) in closure for c in nodes)
    }


def test_the_packages_are_those_of_the_import_table() -> None:
    table = {(package, other) for package, others in MAY_IMPORT.items() for other in others}
    assert drawn("architecture.md") == reduced(table)


def test_every_package_has_a_line() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, flags=re.M)) == set(MAY_IMPORT)


def test_the_files_named_beside_a_package_are_there() -> None:
    for package, line in re.findall(r"^\| `(\w+)` \|(.*)$", TEXT, flags=re.M):
        for name in re.findall(r"`(\w+\.py)`", line):
            assert (ROOT / "rs" / package / name).is_file(), (package, name)


def test_the_stages_are_those_of_the_pipeline() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]

    def places(stage: dict, key: str) -> set[str]:
        names = (name if isinstance(name, str) else next(iter(name)) for name in stage.get(key, ()))
        return {re.sub(r"\$\{.*", "", name) for name in names}

    edges = {
        (one, other)
        for one, other in product(stages, repeat=2)
        for out, dep in product(places(stages[one], "outs"), places(stages[other], "deps"))
        if one != other and (dep.startswith(out) or out.startswith(dep))
    }
    trains = {one for one in stages if "stages.train " in stages[one]["cmd"]}
    # the models of a data set lie in one folder, of which most stages read those of one stage
    read = {
        "targets": "train",
        "certify": "train",
        "certify_from_targets": "train_from_targets",
        "train_from_start": "start",
        "certify_from_start": "train_from_start",
    }
    edges -= {(one, other) for one in trains for other in read if one != read[other]} | {
        ("start", "ensemble")
    }
    assert drawn("pipeline.md") == reduced(edges)


def test_every_stage_has_a_line() -> None:
    text = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \| [a-z]", text.split("## Run it")[0], flags=re.M) == [
        *yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    ]
