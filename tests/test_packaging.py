"""What people install: the locked versions, the files of the wheel, and the command ``rs`` without
a checkout.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

import rs
from rs.certification.certify_model import certification_settings
from rs.errors import DISTRIBUTION, install_command
from rs.params import section
from rs.smoothing.settings import SmoothingOptions
from tests.support.cells import certify_folder
from tests.support.helpers import (
    ROOT,
    arrays,
    python,
    tiny_params,
    write_params,
    write_photos,
    write_tiny,
)
from tests.support.untrained import save_model

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
}

# Asked of the metadata: to look for the module would take the shim of setuptools for distutils away
# from this process.
PIP = any(distribution.name == "pip" for distribution in metadata.distributions())
needs_pip = pytest.mark.skipif(not PIP, reason="pip builds and installs the wheel")


def yaml(name):
    return YAML(typ="safe", pure=True).load((ROOT / name).read_text())


def required(python, system):
    """Names of all packages that this project brings with it for a Python version, by the metadata
    of what is here.
    """
    own = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    found, waiting = (
        set(),
        [*PROJECT["dependencies"], *(one for one in own if not one.startswith(f"{DISTRIBUTION}["))],
    )
    setting = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_system": system,
    }
    while waiting:
        requirement = Requirement(waiting.pop())
        name, extras = canonicalize_name(requirement.name), ("", *requirement.extras)
        if (name, extras) not in found:
            found.add((name, extras))
            further = (
                map(Requirement, metadata.requires(name) or []) if installed_here(name) else []
            )
            waiting += [
                str(one)
                for one in further
                if one.marker is None
                or any(one.marker.evaluate({**setting, "extra": extra}) for extra in extras)
            ]
    return {name for name, _ in found}


def installed_here(name):
    try:
        return metadata.version(name) is not None
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_that_is_installed_is_locked(python):
    assert required(python, "Linux") - set(LOCKED) == set()


def test_the_file_with_hashes_has_the_locked_versions_and_a_sha256_of_each():
    entries = re.split(
        r"^(?=[\w.-]+==)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE
    )[1:]
    lines = [entry.replace("\\\n", "").split() for entry in entries]
    names = [pinned.partition("==") for pinned, *_ in lines]
    assert {canonicalize_name(name): version for name, _, version in names} == LOCKED
    assert len(lines) == len(LOCKED)
    for pinned, *hashes in lines:
        assert hashes, pinned
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pinned


@pytest.mark.skipif(sys.platform != "linux", reason="some packages come with torch on Linux only")
def test_every_locked_package_is_required():
    assert set(LOCKED) - required("3.11", "Linux") == set()


def test_the_hooks_before_a_commit_are_the_locked_ruff():
    (repository,) = yaml(".pre-commit-config.yaml")["repos"]
    assert repository["rev"] == f"v{LOCKED['ruff']}"
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff-check", "ruff-format"]


def test_continuous_integration_runs_the_test_command_on_the_oldest_and_the_newest_python():
    workflow = yaml(".github/workflows/ci.yml")
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert PROJECT["requires-python"] == ">={},<3.{}".format(
        job["strategy"]["matrix"]["python"][0],
        int(job["strategy"]["matrix"]["python"][-1].split(".")[1]) + 1,
    )
    assert job["steps"][-1] == {"run": "make test"}


def test_all_files_that_say_a_version_say_the_same():
    assert yaml("CITATION.cff")["version"] == PROJECT["version"]
    assert (
        re.search(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
        == PROJECT["version"]
    )
    assert rs.__version__ == metadata.version(DISTRIBUTION)


def test_nothing_tells_anyone_to_install_the_package_called_rs_which_is_somebody_elses():
    assert PROJECT["name"] == DISTRIBUTION
    folders = ("rs", "stages", "tests", "benchmarks", "docs", "examples", ".github", ".ci")
    paths = [*ROOT.iterdir(), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    kinds = {".cff", ".ipynb", ".lock", ".md", ".py", ".toml", ".txt", ".yaml", ".yml", ""}
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in paths
        if path.is_file() and path.suffix in kinds
    }
    as_rs = re.compile(
        r"""install (?:-\S+ )*['"]?rs\b(?![-./\w])|['"]rs\[|version\(['"]rs['"]\)|^rs==""",
        re.MULTILINE,
    )
    assert {
        ROOT / name for name in ("README.md", "Makefile", ".github/workflows/ci.yml")
    } <= texts.keys()
    assert {path.name: told for path, text in texts.items() if (told := as_rs.findall(text))} == {}


def test_the_public_names_are_listed_typed_and_there():
    """One list for people, one for type checkers, which read no ``__getattr__``."""
    typed = (ROOT / "rs" / "__init__.pyi").read_text()
    assert dir(rs) == sorted(rs.__all__)
    assert set(re.findall(r" as (\w+)$|^(\w+): str$", typed, re.MULTILINE)) == {
        ("", name) if name == "__version__" else (name, "") for name in rs.__all__
    }
    assert [name for name in rs.__all__ if not hasattr(rs, name)] == []
    assert not hasattr(rs, "no_such_name")


def test_the_smallest_parameter_file_of_the_pages_is_enough_to_certify(tmp_path):
    (text,) = re.findall(
        r"^```yaml\n(.*?)```$", (ROOT / "docs" / "certify.md").read_text(), re.MULTILINE | re.DOTALL
    )
    values = YAML(typ="safe", pure=True).load(text)
    (recipe,) = values["recipes"]
    assert certification_settings(values, recipe).n == 100_000
    assert section(values, f"recipes.{recipe}.arithmetic") == "native"


IMPORTED_AS = {"scikit-learn": "sklearn", "vl-convert-python": "vl_convert"}
MODULES_OF_EXTRAS = [
    IMPORTED_AS.get(name, name)
    for extra, requirements in PROJECT["optional-dependencies"].items()
    if extra not in ("dev", "docs")
    for name in (Requirement(requirement).name for requirement in requirements)
]

SMALL = """
import json, sys

commands, absent = json.loads(sys.argv[1]), sys.argv[2].split()

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from rs.command_line.main import main

for words in commands:
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        print(words[0], int(end.code), flush=True)
"""


def test_a_small_installation_certifies_predicts_shows_and_compares(tmp_path, monkeypatch):
    """The packages of the extras cannot be imported; what needs them says so in one line."""
    monkeypatch.chdir(tmp_path)
    write_tiny(Path("data"))
    write_params(Path("params.yaml"))
    save_model(Path("model"))
    write_photos(Path("photos"), *arrays(4, 3))
    commands = [
        words.split()
        for words in (
            "certify model --images photos --out a.tsv --n 100 --device cpu",
            "certify model --data data --dataset tiny --out b.tsv --device cpu",
            "predict photos/left/0.png --model model --device cpu",
            "show a.tsv b.tsv",
            "compare a.tsv a.tsv",
            "zoo",
            "export a.tsv --out log.tsv",
            "doctor model --data data --device cpu",
            "train gaussian --dataset tiny --sigma 0.25 --seed 0 --data data --device cpu --out "
            "trained --log log",
            "prepare digits --params digits.yaml --out digits",
        )
    ]
    Path("digits.yaml").write_text(
        "datasets: {digits: {source: sklearn, test_share: 0.2, split_seed: 0}}"
    )
    modules, work = " ".join(MODULES_OF_EXTRAS), str(tmp_path / "work")
    done = python("-c", SMALL, json.dumps(commands), modules, cwd=tmp_path, RS_WORK=work)
    codes = [
        line
        for line in done.stdout.splitlines()
        if line.split(" ")[0] in {words[0] for words in commands}
    ]
    ends = {"doctor": 1, "prepare": 2}  # the model is not trained, and digits are scikit-learn's
    assert codes == [f"{words[0]} {ends.get(words[0], 0)}" for words in commands], done.stderr
    last = done.stderr.splitlines()[-1]
    assert (
        last
        == f"error: this needs sklearn, which a small installation has not; {install_command('study')}"
    )


def pip(*words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this checkout, built from a copy, which a build writes into."""
    root = tmp_path_factory.mktemp("wheel")
    for name in ("rs", "stages", "tests", "benchmarks"):
        shutil.copytree(
            ROOT / name, root / "source" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root / "source")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", root, root / "source")
    return next(root.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder that the wheel is installed in, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


@needs_pip
@pytest.mark.slow
def test_the_wheel_has_the_library_with_its_data_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rs").rglob("*.py")}
    web = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rs/reporting/web").iterdir()}
    zoo = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rs/zoo").glob("*/*")}
    texts = {"rs/reporting/published.csv", "rs/reporting/board.txt"}
    assert {Path(name).name for name in zoo} >= {"model.json", "model.safetensors"}
    assert names == modules | web | zoo | {
        "rs/params.yaml",
        "rs/py.typed",
        "rs/__init__.pyi",
        *texts,
    }


@needs_pip
@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [None, pytest.param("torchrun --standalone --nproc-per-node 2", marks=pytest.mark.trust_only)],
    ids=["alone", "launched"],
)
def test_an_installed_command_writes_the_bytes_of_a_checkout(
    installed, tmp_path, work, monkeypatch, launcher
):
    monkeypatch.chdir(tmp_path)
    model, data, params = (
        tmp_path / "model",
        write_tiny(tmp_path / "data"),
        write_params(tmp_path / "params.yaml"),
    )
    save_model(model)
    settings = certification_settings(tiny_params(), "tiny")
    certify_folder("model", data, settings, SmoothingOptions(), out=tmp_path / "checkout.tsv")

    params.write_text(json.dumps({"launcher": launcher, **json.loads(params.read_text())}))
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}

    def command(*words):
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    assert command(sys.executable, "-P", "-c", "import rs; print(rs.__file__)").stdout.startswith(
        str(installed)
    )
    words = [
        "model",
        "--dataset",
        "tiny",
        "--data",
        "data",
        "--out",
        "installed.tsv",
        "--device",
        "cpu",
    ]
    done = command(installed / "bin" / "rs", "certify", *words)
    assert done.returncode == 0, done.stderr
    assert ("process 1 of 2" in done.stderr) == (launcher is not None)
    for suffix in ("tsv", "json"):
        assert (tmp_path / f"installed.{suffix}").read_bytes() == (
            tmp_path / f"checkout.{suffix}"
        ).read_bytes()
