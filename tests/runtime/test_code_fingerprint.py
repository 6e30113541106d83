"""Fingerprints of code: what a change must and must not reach."""

import re
from modulefinder import ModuleFinder
from pathlib import Path

import pytest

from rs.runtime import code_fingerprint

ROOT = Path(__file__).parents[2]
STAGES = sorted(path.stem for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__")


def test_an_edit_of_what_ensembles_or_certificates_are_made_by_trains_nothing():
    used = {path.as_posix() for path in code_fingerprint.closure(ROOT, Path("stages/train.py"))}
    assert not [
        path for path in used if path.split("/")[1] in ("ensemble", "certification", "reporting")
    ]
    assert not used & {
        "rs/smoothing/settings.py",
        "rs/statistics/sequential.py",
    }  # rules of early stopping
    assert "rs/smoothing/classifier.py" in used


def test_an_edit_of_a_training_method_certifies_nothing():
    used = code_fingerprint.closure(ROOT, Path("stages/certify.py"))
    assert Path("rs/ensemble/spec.py") in used
    assert not [path for path in used if path.parent == Path("rs/methods")]


@pytest.mark.parametrize("stage", STAGES)
def test_the_closure_is_what_the_standard_library_finds(stage):
    """ModuleFinder reads byte code, functions included; it must find the same modules of this
    project.
    """
    # It is kept from following imports out of the project by a path that has nothing else on it.
    finder = ModuleFinder(path=[str(ROOT)])
    finder.run_script(str(ROOT / "stages" / f"{stage}.py"))
    files = {
        Path(module.__file__).relative_to(ROOT)
        for module in finder.modules.values()
        if module.__file__
    }
    used = code_fingerprint.closure(ROOT, Path("stages", f"{stage}.py"))
    assert files - {code_fingerprint.TABLE, code_fingerprint.RULES} <= used
    assert Path("rs", "command_line", "shell.py") in files


def project(root, **modules):
    """Write modules; ``rs__methods__macer`` is ``rs/methods/macer.py``, and ``____init__`` an
    ``__init__.py``.
    """
    for name, text in modules.items():
        path = root / Path(*re.split("__(?!init__|$)", name)).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_relative_imports_and_public_names_count(tmp_path):
    """As ``from rs import load`` in a stage of one's own."""
    root = project(
        tmp_path, stages__a="from rs import load", stages__b="import rs.c", rs____init__="",
        rs__c="from . import e\nfrom .e import x", rs__certification__load="", rs__e="",
    )  # fmt: skip
    stages = [code_fingerprint.module_hashes(root, Path("stages", f"{name}.py")) for name in "ab"]
    assert list(stages[0]) == ["rs/__init__.py", "rs/certification/load.py", "stages/a.py"]
    assert list(stages[1]) == ["rs/__init__.py", "rs/c.py", "rs/e.py", "stages/b.py"]


COMMENTED = '''"""A module."""

import os  # why


def f(x):
    """Say something."""
    # because
    return "# not a comment" + x  # but this is


LIMIT = 3
"""What it means."""
'''
BARE = """import os
def f(x):
    return "# not a comment" + x
LIMIT = 3
"""


def test_comments_docstrings_and_blank_lines_do_not_count():
    assert code_fingerprint.digest(COMMENTED) == code_fingerprint.digest(BARE)


def test_the_ends_of_lines_change_no_fingerprint(tmp_path):
    """A checkout on Windows may have others."""
    root = project(tmp_path, stages__a="import rs.b", rs__b=COMMENTED + 'X = """a\nb"""\n')
    texts = ["rs/reporting/published.csv", "rs/reporting/web/page.js", "docs/falsification/a.csv"]
    for name in texts:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"a,b\n1,2\n")

    modules = code_fingerprint.module_hashes(root, Path("stages", "a.py"))
    hashes = code_fingerprint.text_hashes(root)
    assert {*hashes} == {*texts}
    for path in root.rglob("*.*"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert code_fingerprint.module_hashes(root, Path("stages", "a.py")) == modules
    assert code_fingerprint.text_hashes(root) == hashes
    (root / texts[0]).write_text("a,b\n1,3\n")
    assert code_fingerprint.text_hashes(root) != hashes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('class A(B): "doc"', 'class A(C): "doc"'),
        ('x = 1; "doc"; y = 2', 'x = 1; "doc"; y = 3'),
        ('def f(): """a\nb"""; return 1', 'def f(): """a\nb"""; return 2'),
        ('x = """a\n\nb"""', 'x = """a\nb"""'),
        ('x = f"""{y}\n\nb"""', 'x = f"""{y}\nb"""'),
    ],
)
def test_code_beside_a_docstring_counts_and_so_does_every_other_string(one, other):
    assert code_fingerprint.digest(one) != code_fingerprint.digest(other)


def test_a_method_has_a_fingerprint_of_its_own_and_a_stage_that_of_what_methods_share(tmp_path):
    root = project(
        tmp_path,
        stages__train="from rs.methods import METHODS\nfrom rs.methods.base import Step",
        rs__methods____init__="",
        rs__methods__macer="from rs.methods.base import Step\nclass Macer: pass",
        rs__methods__mine="class Mine: pass",
        rs__methods__base="import rs.soft",
        rs__soft="",
        rs__ensemble__rules="",
    )
    table = {"macer": "rs.methods.macer:Macer", "mine": "rs.methods.mine:Mine"}
    before = code_fingerprint.stage_fingerprints(root, table)
    shared = {"rs/methods/base.py", "rs/soft.py"}
    assert {*before["code/train"]} == {"stages/train.py", *shared}
    assert {*before["code/methods/macer"]} == {"class", "rs/methods/macer.py", *shared}
    assert before["code/methods/mine"]["class"] == "rs.methods.mine:Mine"
    (root / code_fingerprint.TABLE).write_text("NEW = 1")  # which is in no fingerprint
    more = table | {"new": "rs.methods.mine:New"}
    assert code_fingerprint.stage_fingerprints(root, more).items() > before.items()
    other = table | {"mine": "rs.methods.macer:Macer"}
    after = code_fingerprint.stage_fingerprints(root, other)
    assert after["code/methods/mine"] != before["code/methods/mine"]


def test_a_rule_of_ensembles_counts_for_no_stage_and_has_a_fingerprint_of_its_own(tmp_path):
    root = project(
        tmp_path,
        stages__certify="import rs.ensemble.rules",
        rs__ensemble__rules="import rs.a",
        rs__a="",
    )
    before = code_fingerprint.stage_fingerprints(root, {})
    assert set(before["code/rules"]) == {"rs/a.py", "rs/ensemble/rules.py"}
    (root / code_fingerprint.RULES).write_text("import rs.a\nNEW = 1")
    after = code_fingerprint.stage_fingerprints(root, {})
    assert [name for name in before if before[name] != after[name]] == ["code/rules"]


def test_an_upgrade_shows_and_a_release_of_the_same_series_does_not(monkeypatch):
    installed = {"numpy": "2.3.1", "torch": "2.14.0+cpu"}
    monkeypatch.setattr("importlib.metadata.version", lambda name: installed[name])
    monkeypatch.setattr("platform.python_version", lambda: "3.11.7")
    series = {"python": "3.11", "numpy": "2.3", "torch": "2.14"}
    assert code_fingerprint.series() == series
    installed |= {"numpy": "2.3.9", "torch": "2.15.0+cu126"}
    assert code_fingerprint.series() == series | {"torch": "2.15"}


def test_the_version_of_a_stage_changes_with_the_code_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(
        code_fingerprint, "ROOT", project(tmp_path, stages__a="import rs.b", rs__b="x = 1")
    )
    before = code_fingerprint.code_hash("stages/a.py")
    (tmp_path / "rs" / "b.py").write_text("x = 2")
    assert code_fingerprint.code_hash("stages/a.py") != before
