"""The command choose: a recipe's name and grid go into the parameters, and nothing else changes."""

import pytest

from rs import params
from stages.choose import main
from tests.support.helpers import ROOT, exit_code, refusal

PROJECT = params.read_params(ROOT / "params.yaml")


def choose(path, dataset):
    """Run the command; its exit code."""
    return exit_code(main, dataset, "--params", path)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_bytes((ROOT / "params.yaml").read_bytes())
    return path


def comments(path):
    return [line.partition("#")[2] for line in path.read_text().splitlines() if "#" in line]


WITHOUT = next(name for name in PROJECT["recipes"] if name not in PROJECT["grids"])


@pytest.mark.parametrize("dataset", [*PROJECT["grids"], WITHOUT])
def test_what_a_recipe_says_of_the_grid_is_written_and_all_else_stays(file, dataset):
    assert choose(file, dataset) == 0
    own = PROJECT["grids"].get(dataset, {})
    assert params.read_params(file) == PROJECT | {"dataset": dataset} | own
    if dataset not in PROJECT["grids"]:
        assert comments(file) == comments(ROOT / "params.yaml")
    before = file.read_bytes()
    assert choose(file, dataset) == 0
    assert file.read_bytes() == before


def test_a_link_and_the_ends_of_lines_stay(file, tmp_path):
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert choose(link, "digits") == 0
    expected = file.read_bytes().replace(b"\n", b"\r\n")
    file.write_bytes((ROOT / "params.yaml").read_bytes().replace(b"\n", b"\r\n"))
    assert choose(link, "digits") == 0
    assert (link.is_symlink(), file.read_bytes()) == (True, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipes: {b: {}}", "must have the key recipes.a; known here: b"),
        ("{recipes: {a: {}}, grids: {a: {sigma: [0.5]}}}", "grids.a must have keys among sigmas, "),
        ("{recipes: {a: {}}, grids: {b: {sigmas: [0.5]}}}", "must have the key recipes.b"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(tmp_path, capfd, text, message):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    assert message in refusal(capfd, main, "a", "--params", path)
    assert path.read_text() == text
