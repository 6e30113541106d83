"""What people install: locked versions, the files of the wheel, and ``rs`` without a checkout."""

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
    write_photos,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
LOCKED = {canonicalize_name(name): version for name, version in PINS}

# Asked of the metadata: to look for the module would take the shim of setuptools for distutils away
# from this process.
PIP = any(distribution.name == "pip" for distribution in metadata.distributions())
needs_pip = pytest.mark.skipif(not PIP, reason="pip builds and installs the wheel")


def required(python):
    """Names of all packages that this project brings with it on Linux, by the metadata here."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_system": "Linux",
    }
    installed = {canonicalize_name(one.name) for one in metadata.distributions()}
    found = set()
    waiting = [Requirement(f"{DISTRIBUTION}[dev]")]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in found:
                continue
            found.add((name, extra))
            texts = metadata.requires(name) if name in installed else None
            for further in map(Requirement, texts or []):
                marker = further.marker
                if marker is None or marker.evaluate(environment | {"extra": extra}):
                    waiting.append(further)
    return {name for name, _ in found} - {DISTRIBUTION}


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_that_is_installed_is_locked(python):
    names = required(python)
    assert "torch" in names
    assert names - set(LOCKED) == set()


def test_the_file_with_hashes_has_the_locked_versions_and_a_sha256_of_each():
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    entries = re.findall(r"^([\w.-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+)\s*$", text, re.M)
    assert {canonicalize_name(name): version for name, version, _ in entries} == LOCKED


def test_all_files_that_say_a_version_say_the_same():
    citation = (ROOT / "CITATION.cff").read_text()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^version: (\S+)", citation, re.M)[1] == PROJECT["version"]
    assert re.search(r"^## \[(\S+)\]", changelog, re.M)[1] == PROJECT["version"]
    assert rs.__version__ == PROJECT["version"]


def test_the_public_names_are_listed_typed_and_there():
    """One list for people, one for type checkers, which read no ``__getattr__``."""
    typed = (ROOT / "rs" / "__init__.pyi").read_text()
    names = re.findall(r" as (\w+)$", typed, re.MULTILINE)
    assert sorted([*names, "__version__"]) == sorted(rs.__all__) == dir(rs)
    assert all(hasattr(rs, name) for name in rs.__all__)
    assert not hasattr(rs, "no_such_name")


def test_the_smallest_parameter_file_of_the_pages_is_enough_to_certify():
    (text,) = re.findall(
        r"^```yaml\n(.*?)```$", (ROOT / "docs" / "certify.md").read_text(), re.MULTILINE | re.DOTALL
    )
    values = YAML(typ="safe", pure=True).load(text)
    (recipe,) = values["recipes"]
    assert certification_settings(values, recipe).n == 100_000
    assert section(values, f"recipes.{recipe}.arithmetic") == "native"


IMPORTED_AS = {"scikit-learn": "sklearn", "vl-convert-python": "vl_convert"}
EXTRAS = PROJECT["optional-dependencies"]
NAMES = [Requirement(text).name for text in EXTRAS["study"] + EXTRAS["int8"]]
MODULES_OF_EXTRAS = [IMPORTED_AS.get(name, name) for name in NAMES]

COMMANDS = """\
certify model --images photos --out a.tsv --n 100 --device cpu
certify model --data data --dataset tiny --out b.tsv --device cpu
predict photos/left/0.png --model model --device cpu
show a.tsv b.tsv
compare a.tsv a.tsv
zoo
export a.tsv --out log.tsv
doctor model --data data --device cpu
train gaussian --dataset tiny --sigma 0.25 --seed 0 --data data --device cpu --out new --log log
prepare digits --params digits.yaml --out digits"""

SMALL = """
import sys

commands, absent = sys.argv[1].splitlines(), sys.argv[2].split()

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
from rs.command_line.main import main

for command in commands:
    sys.argv[1:] = command.split()
    try:
        main()
    except SystemExit as end:
        print("ends:", sys.argv[1], int(end.code), flush=True)
"""


@pytest.mark.usefixtures("tiny_project")
def test_a_small_installation_certifies_predicts_shows_and_compares(tmp_path):
    """The packages of the extras cannot be imported; what needs them says so in one line."""
    write_photos(Path("photos"), *arrays(4, 3))
    Path("digits.yaml").write_text(
        "datasets: {digits: {source: sklearn, test_share: 0.2, split_seed: 0}}"
    )
    modules = " ".join(MODULES_OF_EXTRAS)
    done = python("-c", SMALL, COMMANDS, modules, cwd=tmp_path)
    ends = re.findall(r"^ends: (\w+) (\d)$", done.stdout, re.MULTILINE)
    failed = {"prepare": "2"}  # digits are scikit-learn's; ten images prove nothing to the doctor
    names = [line.split()[0] for line in COMMANDS.splitlines()]
    assert ends == [(name, failed.get(name, "0")) for name in names], done.stderr
    assert "needs sklearn" in done.stderr
    assert install_command("study") in done.stderr


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
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    library = {path for path in (ROOT / "rs").rglob("*") if path.is_file()}
    assert packed == {
        path.relative_to(ROOT).as_posix() for path in library if path.suffix != ".pyc"
    }


@needs_pip
@pytest.mark.slow
@pytest.mark.usefixtures("tiny_project")
def test_an_installed_command_writes_the_bytes_of_a_checkout(installed):
    settings = certification_settings(tiny_params(), "tiny")
    certify_folder("model", Path("data"), settings, SmoothingOptions(), out=Path("checkout.tsv"))

    command = installed / "bin" / "rs"
    options = "--dataset tiny --data data --out installed.tsv --device cpu"
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    place = subprocess.run(
        [sys.executable, "-P", "-c", "import rs; print(rs.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert place.stdout.startswith(str(installed))
    subprocess.run([command, "certify", "model", *options.split()], env=environment, check=True)
    for suffix in ("tsv", "json"):
        expected = Path(f"checkout.{suffix}").read_bytes()
        assert Path(f"installed.{suffix}").read_bytes() == expected
