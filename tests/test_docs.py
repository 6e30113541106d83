"""What the pages say is where they say it is: modules, names, files and tests."""

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
from torch import nn
from torchvision.models import ResNet18_Weights, resnet18

import rs
from rs import params
from tests.support.helpers import ROOT, SHAPE, Linear
from tests.support.pages import PAGES, blocks, check_typer, command_of, commands

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


@pytest.mark.parametrize(
    ("page", "name"), mentions(r"(?<![\w./-])(?:rs|stages|benchmarks)(?:\.[A-Za-z_]\w*)+")
)
def test_a_dotted_name_leads_to_a_module_or_what_is_in_it(page: Path, name: str) -> None:
    pkgutil.resolve_name(name)


@pytest.mark.parametrize(
    ("page", "path"), mentions(r"(?<![\w./-])(?:rs|stages|benchmarks|tests|docs)/[\w./-]*\w")
)
def test_a_path_leads_to_a_file(page: Path, path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("page", "name"), mentions(r"(?<![\w./-])\w+\.py\b"))
def test_a_file_named_alone_is_somewhere(page: Path, name: str) -> None:
    assert any(any((ROOT / folder).rglob(name)) for folder in FOLDERS)


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
    texts = [
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.match(file)
    ]
    found = re.findall(r"^ *def (test_\w+)", "\n".join(texts), re.MULTILINE)
    assert any(name in test for test in found), found


# ------------------------------------------------------------------------------------------
# commands

NOT_RUN = {
    "minutes": "the small study of tests/pipeline/test_pipeline.py runs what they run",
    "hours": "the small study of tests/pipeline/test_pipeline.py runs what they run",
    "network and GPU-days": "nothing here may load data or take days",
    "network": "no test may need one",
    "a network for 224 pixels": "tests/command_line/test_certify.py converts small pictures",
    "a network and pictures of your own": "tests/command_line/test_own_network.py walks this way with small ones",
    "several processes": "tests/pipeline/test_launch.py starts several, tests/certification tries every option",
    "SLURM": "tests/cluster/test_slurm.py runs it where SLURM is installed",
    "several machines": "tests/command_line/test_merge.py merges shares",
    "GPU": "tests/benchmarks/test_gpu_check.py runs what it runs on a simulated one",
    "elsewhere": "tests/pipeline/test_pipeline.py runs these blocks on another machine's folder",
    "public logs": "tests/reporting/test_board.py makes a board of small ones",
    "writes beside a model": "tests/certification/test_quantize.py runs these commands on a small one",
    "trained models": "there are none in a checkout; tests/ensemble and tests/command_line make some",
}
"""Why a block of commands is not run as it stands, and where what it does is tested; its commands
are parsed.
"""

RUN = {
    "start.md",
    "certify.md",
    "published.md",
    "vary.md",
    "remote.md",
    "scaling.md",
    "CONTRIBUTING.md",
}
"""Pages with blocks that tests/pipeline/test_pages.py or test_contributing.py runs."""


def test_a_block_of_commands_is_run_or_says_why_not() -> None:
    marked = {(page.name, block.reason) for page in PAGES for block in blocks(page)}
    assert {page for page, reason in marked if not reason} == RUN
    assert {reason for _, reason in marked if reason} == {*NOT_RUN}


def words_on_pages() -> list:
    """Every command of a page that a program of this project, DVC or make would parse."""
    return [
        pytest.param(words, id=f"{page.name}-{shlex.join(words)}")
        for page in PAGES
        for block in blocks(page)
        for words in commands(block.text)
        if words[0] in ("rs", "python", "torchrun", "dvc", "make")
    ]


@pytest.mark.parametrize("words", words_on_pages())
def test_a_command_has_the_options_that_it_is_given(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def check_dvc(words: list[str]) -> None:
    """Parse words as DVC would; stages and parameters that are named must be there."""
    read = get_main_parser().parse_args(words)
    values = params.read_params(ROOT / "params.yaml")
    stages = {*yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"], "largest"}
    for target in getattr(read, "targets", None) or ():
        known = target.split("@")[0] in stages or (ROOT / target).is_file()
        assert known or MADE_UP.search(target) or "$" in target, target
    for change in getattr(read, "set_param", None) or ():
        section = values
        for key in change.split("=")[0].split(".") if not change.startswith("+") else ():
            assert key in section, f"{change}: there is no {key}"
            section = section[key]


def check_make(words: list[str]) -> None:
    """Targets and variables must be those of the Makefile."""
    text = (ROOT / "Makefile").read_text()
    for word in words:
        variable, equals, _ = word.partition("=")
        pattern = rf"\$\({variable}\)|\$\(or \$\({variable}\)" if equals else rf"^{variable}:"
        assert re.search(pattern, text, re.MULTILINE), word


@pytest.mark.parametrize(
    "words",
    [
        "rs show",
        "rs show a.tsv --digits 3",
        "rs predict a.png --model m --engine fast",
        "rs certify m --n few ...",
    ],
)
def test_a_command_that_would_fail_is_found(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        Exception, match=r"(?i)missing|No such option|is not one of|should be a valid"
    ):
        check_typer(*command_of("rs", words.split()[1:]))


# ------------------------------------------------------------------------------------------ Python


def python_of(page: str) -> str:
    """The blocks of Python of a page, one after the other, but for those that are a file."""
    return "\n".join(block.text for block in blocks(ROOT / page, "python") if not block.file)


def test_the_python_of_every_page_is_run_by_a_test_below() -> None:
    assert {page.name for page in PAGES if python_of(page)} == {
        "README.md",
        "certify.md",
        "tables.md",
    }


def test_the_example_of_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """All n votes are for one class, so the radius is sigma Phi^-1(alpha^(1/n)) on every machine."""
    code = python_of("README.md")
    exec(code, {})
    printed = capsys.readouterr().out
    assert printed == blocks(ROOT / "README.md", "text")[0].text
    radius = 0.5 * NormalDist().inv_cdf(0.001**0.001)
    assert f"l2 radius {int(radius * 1e4) / 1e4}" in printed


def test_the_example_of_the_page_on_tables_prints_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exec(python_of("docs/tables.md"), {})
    printed = "".join(block.text for block in blocks(ROOT / "docs/tables.md", "text"))
    assert capsys.readouterr().out == printed


class Output(SimpleNamespace):
    """What models of Hugging Face return: not a tensor."""


class WithLogits(nn.Module):
    """A stand-in for a model of Hugging Face."""

    def forward(self, pixel_values: torch.Tensor) -> Output:
        """Logits of two classes, beside something else."""
        brightness = pixel_values.mean(dim=(1, 2, 3))
        return Output(loss=None, logits=torch.stack([-brightness, brightness], dim=1))


@pytest.fixture
def my_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``my_package.models`` as the page has it, and libraries that would load weights replaced by
    small ones.
    """
    (block,) = [block for block in blocks(ROOT / "docs/certify.md", "python") if block.file]
    path = tmp_path / block.file
    path.parent.mkdir()
    path.write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_package", "my_package.models"):  # which another test may have imported
        monkeypatch.delitem(sys.modules, name, raising=False)
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
        from_pretrained=lambda name: WithLogits()
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.setattr(
        ResNet18_Weights, "get_state_dict", lambda *_, **__: resnet18().state_dict()
    )
    yield
    for name in ("my_package", "my_package.models"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("my_package")
@pytest.mark.parametrize(
    ("name", "classes"),
    [("file", 10), ("ensemble", 10), ("torchvision", 1000), ("timm", 3), ("hugging_face", 2)],
)
def test_models_of_other_libraries_are_certified_as_the_page_says(name: str, classes: int) -> None:
    smoothed = rs.load(f"my_package.models:{name}_model").smooth(0.25)
    certificate = smoothed.certify(torch.full((3, 32, 32), 0.9), n0=10, n=20)
    assert len(certificate.counts) == classes
    assert certificate.counts.sum() == 20
    if name == "hugging_face":  # normalised before it: 0.9 is brighter than the mean
        assert certificate.predict == 1


@pytest.mark.usefixtures("models_here")
def test_the_example_of_the_page_on_certification_runs() -> None:
    """With an image and a model of the reader's own, and the models of a study."""
    shutil.copytree("models/macer/0", "models/digits/0.25/advmacer/0")
    code = python_of("docs/certify.md").replace(
        "my_package.models:build", "tests.support.helpers:Linear"
    )
    images = np.random.default_rng(0).integers(0, 256, (2, *SHAPE), dtype=np.uint8)
    given = {"model": Linear(), "image": images[0], "images": images}
    exec(code, given)
    assert len(given["certificates"]) == 2
    assert given["smoothed"].precision == "bfloat16"


def symbols() -> list:
    """The rows of the table of symbols that lead to a file: a name, and the text of the files."""
    table = (
        (ROOT / "docs" / "method.md")
        .read_text(encoding="utf-8")
        .split("## Symbols")[1]
        .split("\n## ")[0]
    )
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
        ((ROOT / file) if "/" in file or index == 0 else folder / file).read_text()
        for index, file in enumerate(files)
    ]
    assert any(re.search(rf"\b{name.split('.')[-1]}\b", text) for text in texts)
    if "." in name:
        assert any(
            re.search(rf"^class {name.split('.')[0]}\b", text, re.MULTILINE) for text in texts
        )


def test_the_differences_from_the_paper_name_their_tests() -> None:
    """All but those that are about a number that nobody can test."""
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8").split("## Where we differ")[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][
        2:
    ]
    assert len(rows) > 10
    assert sum("test_" not in row[-1] for row in rows) <= 2
