"""The recipes of CONTRIBUTING.md, carried out in a copy of the project: its code blocks are what is
tested.

The stages of the copy are stand-ins: that the project's run is tested elsewhere.
"""

import itertools
import re
import shutil
import sys
from pathlib import Path

import pytest

from rs import params
from rs.storage.files import read_json
from tests.support.helpers import ROOT
from tests.support.raw_images import image_bytes, pixels
from tests.support.small_project import run, shrink, write_params
from tests.support.stand_in import stand_in_project

BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
SECTIONS = dict(SECTION.findall((ROOT / "CONTRIBUTING.md").read_text()))


def edited(text, diff):
    """The text of a file after an edit, whose lines without a sign must be in it, once."""
    lines = diff.splitlines()
    old, new = (
        "".join(f"{line[1:]}\n" for line in lines if line[:1] in signs) for signs in (" -", " +")
    )
    places = [place.start() for place in re.finditer(f"(?m)^(?={re.escape(old)})", text)]
    assert len(places) == 1, old
    return text[: places[0]] + new + text[places[0] + len(old) :]


def follow(root, section, dataset="digits"):
    """Write and edit files as a section says, make the study small, and run the commands; what they
    print.
    """
    stand_in_project(root)
    shutil.copy(ROOT / "stages" / "choose.py", root / "stages")
    shutil.copytree(ROOT / "tests" / "support", root / "tests" / "support")
    for name in ("conftest.py", "methods/test_contract.py", "ensemble/test_rules.py"):
        (root / "tests" / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / name, root / "tests" / name)
    blocks = BLOCK.findall(SECTIONS[section])
    for kind, name, text in blocks:
        if kind == "python":
            assert not (root / name).exists()
            (root / name).write_text(text)
        if kind == "diff":
            (root / name).write_text(edited((root / name).read_text(), text))
    values = params.read_params(root / "params.yaml")
    values |= {"members": [], "member_seeds": [], "ensembles": {}}
    shrink(values, dataset)
    write_params(root, values)
    commands = [text for kind, _, text in blocks if kind == "sh"]
    assert commands
    make = f'make() {{ command make --old-file=setup BIN={Path(sys.executable).parent} "$@"; }}\n'
    return "".join(run(root, "bash", "-euc", make + text) for text in commands)


@pytest.mark.trust_only
def test_a_training_method_is_a_file_a_line_and_a_section(tmp_path):
    printed = follow(tmp_path / "copy", "Add a training method")
    assert re.search(r"\d+ passed", printed)
    assert re.findall("Running stage '(.*)'", printed) == [
        "fingerprint_first",
        "prepare@digits",
        "train@digits-smoothed-0.5-0",
        "certify@digits-smoothed-0.5-0",
    ]
    parameters = tmp_path / "copy/fingerprints/parameters/digits/train/smoothed-0.5.json"
    assert read_json(parameters)["smoothed"]["lam"] == 0.1


@pytest.mark.parametrize("section", SECTIONS)
def test_every_edit_fits_its_file_and_every_file_is_new(section):
    texts: dict[str, str] = {}
    for kind, name, text in BLOCK.findall(SECTIONS[section]):
        if kind == "python":
            assert not (ROOT / name).exists()
            compile(text, name, "exec")
        if kind == "diff":
            texts[name] = edited(texts.get(name) or (ROOT / name).read_text(), text)
            if name.endswith(".py"):
                compile(texts[name], name, "exec")
    if "params.yaml" in texts:
        params.parse(texts["params.yaml"], "params.yaml")


@pytest.mark.trust_only
def test_a_rule_is_a_class_and_a_line(tmp_path):
    assert re.search(r"\d+ passed", follow(tmp_path / "copy", "Add an ensemble, or a rule"))


@pytest.mark.trust_only
def test_a_data_set_is_two_sections(tmp_path, monkeypatch):
    for split, name in itertools.product(("train", "test"), ("daisy", "rose")):
        (folder := tmp_path / "flowers" / split / name).mkdir(parents=True)
        for number, image in enumerate(pixels(6, (8, 8, 3))):
            (folder / f"{number}.png").write_bytes(image_bytes(image))
    text = SECTIONS["Add a data set"].replace("/path/to/flowers", str(tmp_path / "flowers"))
    monkeypatch.setitem(SECTIONS, "Add a data set", text)
    printed = follow(tmp_path / "copy", "Add a data set", "flowers")
    assert re.findall("Running stage '(.*)'", printed) == [
        "fingerprint_first",
        "prepare@flowers",
        "train@flowers-gaussian-0.5-0",
        "certify@flowers-gaussian-0.5-0",
    ]
