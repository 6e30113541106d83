"""Which package of ``rs`` may import which: the plan of the house, held against the code."""

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.helpers import ROOT, python

KERNEL = {"errors", "params"}

MAY_IMPORT = {
    "runtime": set(),
    "statistics": set(),
    "study": set(),
    "storage": {"runtime", "statistics"},
    "data": {"runtime", "statistics", "storage"},
    "models": {"data", "runtime", "storage"},
    "smoothing": {"models", "runtime", "statistics", "study"},
    "methods": {"models", "smoothing", "statistics"},
    "training": {
        "certification",
        "data",
        "methods",
        "models",
        "runtime",
        "smoothing",
        "statistics",
        "storage",
    },
    "ensemble": {"data", "models", "runtime", "smoothing", "statistics", "storage", "study"},
    "certification": {
        "data",
        "ensemble",
        "models",
        "runtime",
        "smoothing",
        "statistics",
        "storage",
        "study",
    },
    "reporting": {"data", "runtime", "statistics", "storage", "study"},
}
MAY_IMPORT["command_line"] = set(MAY_IMPORT)


def imports(source: str) -> set[str]:
    """Modules of the project that a module names in its imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("rs", "stages", "benchmarks", "tests")}


def forbidden(root: Path) -> list[str]:
    """Edges between packages that the table does not have, as "file -> module"."""
    edges = []
    for path in sorted((root / "rs").rglob("*.py")):
        own = path.relative_to(root / "rs").with_suffix("").parts
        if own == ("__init__",):
            continue
        allowed = KERNEL if own[0] in KERNEL else KERNEL | {own[0]} | MAY_IMPORT[own[0]]
        for name in sorted(imports(path.read_text(encoding="utf-8"))):
            top, *rest = name.split(".")
            if top != "rs" or (rest and rest[0] not in allowed):
                edges.append(f"{path.relative_to(root)} -> {name}")
    return edges


def test_every_package_imports_what_the_table_allows_and_no_more() -> None:
    assert forbidden(ROOT) == []


def test_no_module_imports_itself_through_others() -> None:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in (ROOT / "rs").rglob("*.py")
    }
    graph = {
        name: imports(path.read_text(encoding="utf-8")) & set(modules)
        for name, path in modules.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_every_package_stands_in_the_table() -> None:
    assert {path.parent.name for path in (ROOT / "rs").glob("*/__init__.py")} == set(MAY_IMPORT)


def test_the_code_that_is_said_to_run_is_in_the_library() -> None:
    """An installed library has no folder of stages."""
    named = re.compile(r'"stages/\w+\.py"')
    assert [
        path
        for path in (ROOT / "rs").rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
    ] == []


def test_the_table_has_no_cycle() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()  # raises CycleError


SHARED_NAMES = {"load"}
"""Public functions and classes whose name two modules have; anything new gets a name of its own."""


def public_names(path: Path) -> set[str]:
    """Return the public functions and classes of a module, except the ``main`` of a command."""
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name for name in names if not name.startswith("_") and name != "main"}


def test_a_public_name_stands_in_one_module() -> None:
    counts = Counter(name for path in (ROOT / "rs").rglob("*.py") for name in public_names(path))
    assert {name for name, count in counts.items() if count > 1} == SHARED_NAMES
    assert len(SHARED_NAMES) <= 8


PURE = (
    "rs.statistics.radius",
    "rs.statistics.metrics",
    "rs.statistics.ensemble_variance",
    "rs.storage.certificate_rows",
    "rs.reporting.report",
    "rs.params",
    "rs.runtime.code_fingerprint",
    "rs.storage.files",
    "rs.data.sources",
)


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (["rs"], {"torch", "numpy"}),
        (["rs.reporting.settings"], {"torch", "pandas", "matplotlib"}),
        (PURE, {"torch"}),
    ],
    ids=["package", "check of a study", "pure modules"],
)
def test_an_import_does_not_load_what_it_does_not_need(
    modules: list[str], absent: set[str]
) -> None:
    code = f"import sys, rs, {', '.join(modules)}; dir(rs), rs.__version__; print({absent!r} & {{*sys.modules}})"
    assert python("-c", code).stdout == "set()\n"


@pytest.mark.parametrize(
    ("module", "line", "edge"),
    [
        (
            "reporting/load.py",
            "import rs.models.checkpoint",
            "rs/reporting/load.py -> rs.models.checkpoint",
        ),
        (
            "ensemble/spec.py",
            "from stages.train import main",
            "rs/ensemble/spec.py -> stages.train",
        ),
    ],
)
def test_a_forbidden_import_is_named(tmp_path: Path, module: str, line: str, edge: str) -> None:
    path = tmp_path / "rs" / module
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert any(edge in found for found in forbidden(tmp_path))
