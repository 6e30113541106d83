"""The commands and notebooks of the pages run as they stand, and the pages make a site."""

import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sphinx.cmd.build import build_main

import rs
from rs import params
from rs.command_line.main import app
from rs.command_line.shell import run as run_command
from rs.models import architectures
from rs.statistics.radius import lower_bound, radius
from rs.storage.files import write_json
from stages.choose import with_values
from tests.support.helpers import ROOT
from tests.support.pages import blocks, commands, written_out
from tests.support.small_project import contents, run
from tests.support.stand_in import stand_in_project
from tests.support.untrained import save_model

LISTS = {
    "methods": ["gaussian", "advmacer"],
    "sigmas": [0.25],
    "members": [],
    "member_seeds": [],
    "ensembles": [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A repository with a small grid that was run and committed, its stages stand-ins."""
    root = stand_in_project(tmp_path_factory.mktemp("pages") / "project")
    path = root / "params.yaml"
    path.write_text(with_values(path.read_text(), LISTS))
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "activate").touch()
    run(root, "dvc", "repro", "--quiet")
    run(root, "git", "add", "--all")
    run(root, "git", "commit", "--quiet", "--message", "Run the study")
    return root


def shell(root, *texts):
    """Run blocks of commands one after the other, each in a shell that ends at the first failure;
    what they print.
    """
    return [run(root, "bash", "-euc", text) for text in texts]


def shown(page):
    """The blocks of commands of a page that are run."""
    return [block.text for block in blocks(ROOT / "docs" / page) if not block.reason]


def state(root):
    """The contents of parameters, lock, report and outputs; logs are without wall times."""
    found = contents(root, "reports", "models", "results", "logs", "fingerprints")
    kept = {str(path): content for path, content in found.items() if path.parts[0] != "logs"}
    histories = {str(path): found[path] for path in found if path.name == "history.csv"}
    files = {name: (root / name).read_bytes() for name in ("params.yaml", "dvc.lock")}
    return kept | histories | files


@pytest.mark.trust_only
def test_an_experiment_is_varied_compared_and_left_as_the_page_says(made, tmp_path):
    shutil.copytree(made, root := tmp_path / "copy", symlinks=True)
    before = state(root)
    change, back, again, compare, rows, grid = shown("vary.md")
    assert re.findall("Running stage '(.*)'", (printed := shell(root, change)[0])) == [
        "fingerprint_first",
        "train@digits-advmacer-0.25-0",
        "certify@digits-advmacer-0.25-0",
        "ensemble@digits-0.25",
        "weights@digits-0.25",
        "certify_ensembles@digits-0.25",
        "tables@digits",
    ]
    assert re.search(r"recipes\.digits\.advmacer\.lam +0\.5 +1\.0", printed)
    assert "acr.advmacer.0.25" in printed
    assert before["params.yaml"] != (root / "params.yaml").read_bytes()
    shell(root, back)
    assert state(root) == before
    assert run(root, "git", "status", "--short") == ""
    assert "lam-1" in shell(root, again)[0]
    assert state(root) == before
    table = shell(root, compare)[0]
    assert all(name in table for name in ("lam-1", "lam-2", "lam-4", "acr.advmacer.0.25"))
    shell(root, rows)
    assert (root / "lam-1.tsv").read_bytes() != before["results/digits/0.25/advmacer-0.tsv"]
    shell(root, grid)
    assert state(root) == before


@pytest.mark.trust_only
def test_what_was_pushed_to_a_folder_is_pulled_elsewhere_and_nothing_runs_again(made, tmp_path):
    shutil.copytree(made, here := tmp_path / "here", symlinks=True)
    push, pull = shown("remote.md")
    shell(here, push)
    run(tmp_path, "git", "clone", "--quiet", "here", "there")
    there = tmp_path / "there"
    printed = shell(there, pull)[0]
    assert re.findall("Running stage '(.*)'", printed) == ["fingerprint_first"]
    assert state(there) == state(here)
    assert run(there, "git", "status", "--short") == ""


@pytest.mark.trust_only
def test_a_queue_takes_what_the_page_puts_into_it(made, tmp_path):
    shutil.copytree(made, root := tmp_path / "copy", symlinks=True)
    (queue,) = shown("scaling.md")
    shell(root, queue.split("dvc queue start")[0])
    assert run(root, "dvc", "queue", "status").count("Queued") >= 2


# ------------------------------------------------------------------------------------------------
# the command rs


MODEL = """
import torch
from sklearn.datasets import load_digits
from torch import nn


class NearestMean(nn.Module):
    def __init__(self):
        super().__init__()
        digits = load_digits()
        images = torch.tensor(digits.images / 16).float().flatten(1)
        labels = torch.tensor(digits.target)
        means = [images[labels == k].mean(dim=0) for k in range(10)]
        self.register_buffer("means", torch.stack(means))

    def forward(self, x):
        return x.flatten(1) @ self.means.T - self.means.square().sum(dim=1) / 2


build = NearestMean
"""


def rs_commands(page):
    """Run the commands ``rs`` of a page in this process, and those of Python."""
    for words in (words for text in shown(page) for words in commands(text)):
        if words[:2] == ["python", "-c"]:
            exec(words[2], {})
        if words[0] == "rs":
            rs_command(words[1:])


def rs_command(words):
    """Run a command; it must succeed."""
    with pytest.raises(SystemExit) as ended:
        run_command(app, written_out(words))
    assert ended.value.code in (0, None), words


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The prepared digits."""
    folder = tmp_path_factory.mktemp("digits") / "digits"
    rs_command(["prepare", "digits", "--out", str(folder), "--params", str(ROOT / "params.yaml")])
    return folder


@pytest.fixture
def workplace(tmp_path, monkeypatch, digits):
    """A folder with digits, an untrained network for them, a model of the user's, an image, and the
    parameters.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RS_DEVICE", "cpu")
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(digits, "data/digits")
    shutil.copytree(digits, "data/cifar10")
    meta = params.read_params(digits / "meta.json")
    shape = {name: meta[name] for name in ("shape", "classes")}
    save_model(Path("models/digits/0.25/advmacer/0"), dataset="digits", **shape)
    certify = params.packaged()["defaults"]["certify"] | {"n": 1000, "engine": "plain"}
    recipes = {name: {"arithmetic": "native", "certify": certify} for name in ("digits", "cifar10")}
    write_json(Path("params.yaml"), {"recipes": recipes})
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    images = load_digits().images  # which begin with one of each class, in order
    for name, pixels in zip(names, images, strict=False):
        path = tmp_path / "photos" / name / "1.png"
        path.parent.mkdir(parents=True)
        Image.fromarray((pixels * 255 / 16).astype(np.uint8)).save(path)
    (tmp_path / "names.txt").write_text("\n".join(names))
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "models.py").write_text(MODEL)
    return tmp_path


def test_the_commands_of_the_start_run(workplace, capsys):
    every = [words for block in blocks(ROOT / "docs/start.md") for words in commands(block.text)]
    certify = next(words for words in every if "certify" in words)
    assert certify[-2:] == ["--out", "rows.tsv"]
    for name in ("advmacer-0", "gaussian-0"):
        rs_command([*certify[1:-1], f"results/digits/0.25/{name}.tsv"])
    capsys.readouterr()
    rs_commands("start.md")
    assert np.asarray(Image.open("digit.png")).shape == (8, 8)
    assert re.search(r"^digit.png: ", capsys.readouterr().out, re.MULTILINE)


def test_the_commands_of_the_page_on_certification_run(workplace, monkeypatch):
    Image.fromarray(np.full((8, 8), 128, np.uint8)).save("photo.png")
    for name in ("photo.jpg", "scan.png"):
        Image.fromarray(np.full((20, 30, 3), 128, np.uint8)).save(name)
    first, *_ = blocks(ROOT / "docs/certify.md")
    rs_command([*next(commands(first.text))[1:-1], "other.tsv"])
    Path("results/digits/0.25").mkdir(parents=True)
    words = "certify models/digits/0.25/advmacer/0 --dataset digits --data data/digits"
    rows = ["--subset", "{first: 18}", "--out", "results/digits/0.25/advmacer-0.tsv"]
    rs_command([*words.split(), *rows])
    rs_commands("certify.md")
    assert Path("log.tsv").is_file()
    assert not Path("dry.tsv").exists()


def test_the_commands_of_the_page_on_what_others_published_run(workplace, capsys):
    """With a checkpoint and logs as the field publishes them: radii of three digits, on rungs of n
    = 100,000.
    """
    network = architectures.build("resnet110", (1, 8, 8), 10, [0.0], [1.0], seed=0).network
    state = {f"1.module.{name}": value for name, value in network.state_dict().items()}
    torch.save({"arch": "cifar_resnet110", "epoch": 90, "state_dict": state}, "checkpoint.pth.tar")
    for name, missed in (("theirs", 0), ("others", 1)):
        radii = radius(lower_bound(100_000 - missed - np.arange(20) % 7, 100_000, 0.001), 0.5)
        lines = [f"{i}\t3\t3\t{r:.3g}\t1\t0:00:14.037966" for i, r in enumerate(radii)]
        text = "\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *lines])
        Path(f"{name}.log").write_text(text + "\n")
    rs_commands("published.md")
    printed = capsys.readouterr().out
    assert "resnet110 for digits, sigma = 0.5, normalization mean-std; model in" in printed
    assert "20 images that both have; sigma = 0.5, n0 = 100, n = 100,000, alpha = 0.001" in printed


# ------------------------------------------------------------------------------------------
# notebooks and site


FROM_ELSEWHERE = re.compile(
    r"""<(?!a\b)\w+\b[^>]*\s(?:src|srcset|href|data|poster)=["']?(?:https?:)?//"""
    r"""|(?:\bfrom|\bimport|\burl\(|@import)[\s(]*["']?(?:https?:)?//"""
)
"""What a page, a script or a style sheet loads from another host; links lead there on a click."""


def test_the_pages_and_executed_notebooks_make_a_site_without_a_warning(tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Sphinx logs about pages are no warnings of Python
        places = [tmp_path / "trees", ROOT / "docs", tmp_path / "site"]
        code = build_main(["--fail-on-warning", "--quiet", "-d", *map(str, places)])
    assert code == 0, capsys.readouterr().err
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages <= {path.stem for path in (tmp_path / "site").glob("*.html")}
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        page = (tmp_path / "site/examples" / notebook.stem).with_suffix(".html").read_text()
        assert "data:image/png" in page or "_images/" in page
    for suffix in ("html", "css", "js"):
        for path in (tmp_path / "site").rglob(f"*.{suffix}"):
            text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
            assert not FROM_ELSEWHERE.search(text), path
    described = (tmp_path / "site" / "api.html").read_text()
    assert all(f'id="rs.{name}"' in described for name in rs.__all__ if name != "__version__")
