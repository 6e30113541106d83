"""What the pages say is where they say it is: modules, names, files and tests."""

import ast
import importlib
import re
import shutil
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from tests.support.helpers import ROOT, SHAPE, Linear

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
FOLDERS = ("rs", "stages", "benchmarks", "tests")
MADE_UP = re.compile(r"mine|MINE|NAME|smoothed|largest")
"""In names that a page makes up, for files that the reader writes."""


def mentions(pattern: str) -> list:
    """Every match of a pattern in a page, once a page."""
    return [
        pytest.param(page, word, id=f"{page.name}-{word}")
        for page in PAGES
        for word in dict.fromkeys(re.findall(pattern, page.read_text(encoding="utf-8")))
        if not MADE_UP.search(word)
    ]


def functions(path: Path) -> list[str]:
    """Names of the test functions of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def resolve(name: str) -> object:
    """The module, or the object in one, that a dotted name leads to."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        path = ROOT.joinpath(*words[:count])
        if path.is_dir() or path.with_suffix(".py").is_file():
            found = importlib.import_module(".".join(words[:count]))
            for word in words[count:]:
                found = getattr(found, word)
            return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize(("page", "name"), mentions(r"(?<![\w./-])(?:rs|stages|benchmarks)(?:\.[A-Za-z_]\w*)+"))
def test_a_dotted_name_leads_to_a_module_or_what_is_in_it(page: Path, name: str) -> None:
    resolve(name)


@pytest.mark.parametrize(("page", "path"), mentions(r"(?<![\w./-])(?:rs|stages|benchmarks|tests|docs)/[\w./-]*\w"))
def test_a_path_leads_to_a_file(page: Path, path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("page", "name"), mentions(r"(?<![\w./-])\w+\.py\b"))
def test_a_file_named_alone_is_somewhere(page: Path, name: str) -> None:
    assert any(path.name == name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize(("page", "link"), mentions(r"\]\((?!https?:)([^)#]+)"))
def test_a_link_leads_to_a_file(page: Path, link: str) -> None:
    assert (page.parent / link).exists()


TESTS = re.compile(r"`(?:tests/)?([\w/]*test_\w+\.py)`: ([\w.]+(?:, [\w.]+)*)")
"""A test file, and what the names of its tests begin with."""


@pytest.mark.parametrize(
    ("file", "name"),
    [
        pytest.param(file, name.rstrip("."), id=f"{file}-{name}")
        for page in PAGES
        for file, names in TESTS.findall(page.read_text(encoding="utf-8"))
        for name in names.split(", ")
        if not MADE_UP.search(file)
    ],
)
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    found = [test for path in (ROOT / "tests").rglob("test_*.py") if path.match(file) for test in functions(path)]
    assert any(name in test for test in found), found


def python_of(page: str) -> str:
    """The blocks of Python of a page, one after the other."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S))


def test_the_example_of_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """All n votes are for one class, so the radius is sigma Phi^-1(alpha^(1/n)) on every machine."""
    code = python_of("README.md")
    exec(code, {})
    assert capsys.readouterr().out.strip() == re.findall(r"print\(certificate\)  # (.*)", code)[0]
    radius = 0.25 * NormalDist().inv_cdf(0.001**0.001)
    assert f"l2 radius {int(radius * 1e4) / 1e4}" in code


@pytest.mark.usefixtures("models_here")
def test_the_example_of_the_page_on_certification_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """With an image and a model of the reader's own, and the models of a study."""
    shutil.copytree("models/macer/0", "models/digits/0.25/advmacer/0")
    code = python_of("docs/certify.md").replace("my_package.models:build", "tests.support.helpers:Linear")
    images = np.random.default_rng(0).integers(0, 256, (2, *SHAPE), dtype=np.uint8)
    given = {"model": Linear(), "image": images[0], "images": images}
    exec(code, given)
    assert len(given["certificates"]) == len(capsys.readouterr().out.splitlines()) == 2
    assert given["smoothed"].precision == "bfloat16"


def symbols() -> list:
    """The rows of the table of symbols that lead to a file: a name, and the text of the files."""
    table = (ROOT / "docs" / "method.md").read_text(encoding="utf-8").split("## Symbols")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    return [
        pytest.param(name, re.findall(r"`([\w./]+)`", cells[2]), id=name)
        for cells in rows
        for name in re.findall(r"`([\w.]+)`", cells[1])
        if "`" in cells[2]
    ]


@pytest.mark.parametrize(("name", "files"), symbols())
def test_a_symbol_is_named_in_the_file_beside_it(name: str, files: list[str]) -> None:
    folder = (ROOT / files[0]).parent
    texts = [
        ((ROOT / file) if "/" in file or index == 0 else folder / file).read_text() for index, file in enumerate(files)
    ]
    assert any(re.search(rf"\b{name.split('.')[-1]}\b", text) for text in texts)
    if "." in name:
        assert any(re.search(rf"^class {name.split('.')[0]}\b", text, re.MULTILINE) for text in texts)


def test_the_differences_from_the_paper_name_their_tests() -> None:
    """All but those that are about a number that nobody can test."""
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8").split("## Where we differ")[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    assert sum("test_" not in row[-1] for row in rows) <= 2
