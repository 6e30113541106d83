"""What the pages name exists, their commands parse, and their Python runs."""

import pkgutil
import re
import shlex
import shutil
import sys
from pathlib import Path
from statistics import NormalDist
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from dvc.cli.parser import get_main_parser
from scipy.stats import beta
from torchvision.models import ResNet18_Weights, resnet18

import rs
from rs import params
from rs.storage.certificate_rows import read_rows
from tests.support.helpers import ROOT, SHAPE, Linear
from tests.support.networks import WithLogits
from tests.support.pages import PAGES, blocks, check_typer, command_of, commands

MADE_UP = re.compile(r"mine|MINE|NAME|smoothed|largest")
"""In names that a page makes up, for files that the reader writes."""


DOTTED_NAME = re.compile(r"(?<![\w./-])(?:rs|stages|benchmarks)(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"(?<![\w./-])(?:rs|stages|benchmarks|tests|docs)/[\w./-]*\w")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
CHANGE = re.compile(r"`[^`\n]*-S (\+?[\w.-]+=)")
TESTS = re.compile(r"`(tests/[\w/]+\.py)`: (\w+(?:\.\.\.)?(?:, \w+(?:\.\.\.)?)*)")
"""A file of tests, and the beginnings of their names."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_modules_and_files_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in DOTTED_NAME.findall(text):
        if not MADE_UP.search(name):
            pkgutil.resolve_name(name)
    paths = [ROOT / path for path in PATH.findall(text)]
    paths += [page.parent / link for link in LINK.findall(text)]
    missing = [path for path in paths if not path.exists() and not MADE_UP.search(path.name)]
    assert missing == []
    for file, names in TESTS.findall(text):
        tests = (ROOT / file).read_text(encoding="utf-8")
        for name in names.replace("...", "").split(", "):
            assert f"def test_{name}" in tests


# ------------------------------------------------------------------------------------------
# commands


def words_on_pages():
    """Every command of a page that a program of this project, DVC or make would parse."""
    return [
        pytest.param(words, id=f"{page.name}-{shlex.join(words)}")
        for page in PAGES
        for block in blocks(page)
        for words in commands(block.text)
        if words[0] in ("rs", "python", "torchrun", "dvc", "make")
    ]


@pytest.mark.parametrize("words", words_on_pages())
def test_a_command_has_the_options_that_it_is_given(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    match words:
        case ["rs", *rest]:
            check_typer(*command_of("rs", rest))
        case ["torchrun", *_]:
            module, *rest = words[words.index("--") + 1 :]
            check_typer(*command_of(module, rest))
        case ["python", "-m", "pip" | "pytest", *_]:
            pass
        case ["python", "-m", module, *rest]:
            check_typer(*command_of(module, rest))
        case ["python", "-c", code]:
            compile(code, "page", "exec")
        case ["dvc", *rest]:
            check_dvc(rest)
        case ["make", *rest]:
            check_make(rest)
        case _:
            pytest.fail(f"unknown: {words}")


def check_dvc(words):
    """Parse words as DVC would; stages and parameters that are named must be there."""
    read = get_main_parser().parse_args(words)
    values = params.read_params(ROOT / "params.yaml")
    stages = {*yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"], "largest"}
    for target in getattr(read, "targets", None) or ():
        known = target.split("@")[0] in stages or (ROOT / target).is_file()
        assert known or MADE_UP.search(target) or "$" in target, target
    for change in getattr(read, "set_param", None) or ():
        check_change(change, values)


def check_change(change, values):
    """A parameter that is changed must be there; a plus sign adds it."""
    section = values
    for key in change.split("=")[0].split(".") if not change.startswith("+") else ():
        assert key in section, f"{change}: there is no {key}"
        section = section[key]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_parameters_that_a_sentence_changes_exist(page):
    values = params.read_params(ROOT / "params.yaml")
    for change in CHANGE.findall(page.read_text()):
        check_change(change, values)


def check_make(words):
    """Targets and variables must be those of the Makefile."""
    text = (ROOT / "Makefile").read_text()
    for word in words:
        variable, equals, _ = word.partition("=")
        pattern = rf"\$\({variable}\)|\$\(or \$\({variable}\)" if equals else rf"^{variable}:"
        assert re.search(pattern, text, re.MULTILINE), word


# ------------------------------------------------------------------------------------------
# Python


def python_of(page):
    """The blocks of Python of a page, one after the other, but for those that are a file."""
    return "\n".join(block.text for block in blocks(ROOT / page, "python") if not block.file)


def test_the_example_of_the_readme_prints_what_it_says(capsys):
    """The radius follows from 922 of 1,000 votes; no vote is within 0.001 of a tie of logits."""
    code = python_of("README.md")
    exec(code, {})
    printed = capsys.readouterr().out
    assert printed == blocks(ROOT / "README.md", "text")[0].text
    p_lower = beta.ppf(0.001, 922, 1000 - 922 + 1)
    radius = 0.25 * NormalDist().inv_cdf(p_lower)
    assert f"l2 radius {int(radius * 1e4) / 1e4}" in printed


def test_the_example_of_the_page_on_tables_prints_what_it_says(capsys):
    exec(python_of("docs/tables.md"), {})
    printed = "".join(block.text for block in blocks(ROOT / "docs/tables.md", "text"))
    assert capsys.readouterr().out == printed


@pytest.fixture
def my_package(tmp_path, monkeypatch):
    """``my_package.models`` as the page has it, with libraries whose weights are small."""
    (block,) = [block for block in blocks(ROOT / "docs/certify.md", "python") if block.file]
    path = tmp_path / block.file
    path.parent.mkdir()
    path.write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    forget_my_package()  # which another test may have imported
    facts = {"mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)}
    monkeypatch.chdir(tmp_path)
    for name in ("first.pt", "second.pt"):
        torch.save(resnet18(num_classes=10).state_dict(), name)
    timm, transformers = ModuleType("timm"), ModuleType("transformers")
    timm.create_model = lambda name, pretrained: resnet18(num_classes=3)
    timm.data = SimpleNamespace(resolve_model_data_config=lambda network: facts)
    processor = SimpleNamespace(image_mean=facts["mean"], image_std=facts["std"])
    transformers.AutoImageProcessor = SimpleNamespace(from_pretrained=lambda name: processor)
    transformers.AutoModelForImageClassification = SimpleNamespace(
        from_pretrained=lambda name: WithLogits(Linear(1.3))
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.setattr(
        ResNet18_Weights, "get_state_dict", lambda *_, **__: resnet18().state_dict()
    )
    yield
    forget_my_package()


def forget_my_package():
    for name in ("my_package", "my_package.models"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("my_package")
@pytest.mark.parametrize(
    ("name", "classes"),
    [("file", 10), ("ensemble", 10), ("torchvision", 1000), ("timm", 3), ("hugging_face", 2)],
)
def test_models_of_other_libraries_are_certified_as_the_page_says(name, classes):
    smoothed = rs.load(f"my_package.models:{name}_model").smooth(0.25)
    certificate = smoothed.certify(torch.full((3, 32, 32), 0.9), n0=10, n=20)
    assert len(certificate.counts) == classes
    assert certificate.counts.sum() == 20
    if name == "hugging_face":  # normalized before it: 0.9 becomes 2, which exceeds 1.3
        assert certificate.counts.argmax() == 1


@pytest.mark.usefixtures("models_here")
def test_the_example_of_the_page_on_certification_runs():
    """With an image and a model of the reader's own, and the models of a study."""
    shutil.copytree("models/macer/0", "models/digits/0.25/advmacer/0")
    code = python_of("docs/certify.md").replace(
        "my_package.models:build", "tests.support.helpers:Linear"
    )
    images = np.random.default_rng(0).integers(0, 256, (2, *SHAPE), dtype=np.uint8)
    given = {"model": Linear(), "image": images[0], "images": images, "labels": [0, 1]}
    exec(code, given)
    assert read_rows(Path("python.tsv"))["label"].tolist() == [0, 1]
    assert given["smoothed"].precision == "bfloat16"
