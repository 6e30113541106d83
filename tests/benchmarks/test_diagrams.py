"""The diagrams of the pages show the pipeline and the packages as they are."""

import re

import networkx as nx

from tests.support.helpers import ROOT
from tests.support.small_project import run
from tests.test_imports import MAY_IMPORT


def drawn(name: str) -> nx.DiGraph:
    """The arrows of a picture, by the names of their elements."""
    picture = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return nx.DiGraph(re.findall(r'id="(\w+)-to-(\w+)"', picture))


def paths(graph: nx.DiGraph) -> set[tuple[str, str]]:
    """The pairs of nodes of which arrows lead from one to the other, in one step or more."""
    return {*nx.transitive_closure(graph).edges}


def test_the_picture_of_the_pipeline_leads_from_stage_to_stage_as_dvc_does() -> None:
    lines = run(ROOT, "dvc", "dag", "--collapse-foreach-matrix", "--dot")
    arrows = re.findall(r'^"(\w+)" -> "(\w+)"', lines, re.MULTILINE)
    assert paths(drawn("pipeline.svg")) == paths(nx.DiGraph(arrows))


def test_the_picture_of_the_packages_leads_from_import_to_import() -> None:
    """Draw the table of imports, which its own test compares with the code."""
    found = nx.DiGraph(MAY_IMPORT)
    picture = drawn("architecture.svg")
    assert paths(picture) == paths(found)
    assert {*picture.edges} <= {*found.edges}
