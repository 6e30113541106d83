"""Which package of ``rs`` may import which: the plan of the house, held against the code."""

import ast
import pkgutil

import pytest

from tests.support.helpers import ROOT, python

KERNEL = {"errors", "params", "recipes"}

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


def imports(source):
    """Modules of the project that a module names in its imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("rs", "stages", "benchmarks", "tests")}


def test_every_package_imports_what_the_table_allows_and_no_more():
    forbidden = []
    used = {package: set() for package in MAY_IMPORT}
    for path in (ROOT / "rs").rglob("*.py"):
        package = path.relative_to(ROOT / "rs").with_suffix("").parts[0]
        if package == "__init__":
            continue
        allowed = set(KERNEL)
        if package not in KERNEL:
            allowed |= {package} | MAY_IMPORT[package]
        for name in imports(path.read_text(encoding="utf-8")):
            top, *rest = name.split(".")
            if top != "rs" or (rest and rest[0] not in allowed):
                forbidden.append(f"{path.relative_to(ROOT)} -> {name}")
            elif rest and rest[0] in MAY_IMPORT.get(package, ()):
                used[package].add(rest[0])
    assert forbidden == []
    assert used == MAY_IMPORT


def test_every_name_that_a_benchmark_imports_exists():
    for path in (ROOT / "benchmarks").glob("*.py"):
        for name in imports(path.read_text(encoding="utf-8")):
            pkgutil.resolve_name(name)


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
def test_an_import_does_not_load_what_it_does_not_need(modules, absent):
    code = f"""
import sys, {", ".join(modules)}
dir(rs)
rs.__version__
print({absent!r} & set(sys.modules))
"""
    assert python("-c", code).stdout == "set()\n"
