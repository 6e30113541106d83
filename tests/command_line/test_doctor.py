"""What the command says of a classifier: ``rs.command_line.doctor``."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rs.command_line.main import app
from rs.errors import InputError
from tests.support.helpers import arrays, write_photos, write_tiny
from tests.support.untrained import save_model

MODELS = """
import torch

class Halves(torch.nn.Module):
    def forward(self, x):
        difference = (x[..., :2] - x[..., 2:]).flatten(1).mean(1, keepdim=True)
        return torch.cat([difference, -difference], 1)

def good():
    return Halves()
"""


@pytest.fixture(autouse=True)
def project(own_folder):
    """The tiny data set, as files too in a subfolder for each class, and classifiers of it."""
    write_tiny(Path("data"), test=60)
    write_photos(Path("photos"), *arrays(60, 3))
    Path("own_models.py").write_text(MODELS)


def doctor(*words):
    return CliRunner().invoke(app, ["doctor", *map(str, words)], prog_name="rs")


def test_a_function_needs_images():
    assert isinstance(doctor("own_models:good").exception, InputError)


def test_a_folder_of_pictures_takes_the_place_of_a_data_set():
    words = ("--images", "photos", "--sigma", 0.1)
    result = doctor("own_models:good", *words)
    assert result.exit_code == 0
    levels = [line.partition(":")[0] for line in result.stdout.splitlines()]
    assert levels == ["ok"] * 5
    commands = " ".join(result.stderr.replace("\\\n", " ").split())
    assert "rs certify own_models:good --sigma 0.1 --images photos" in commands
    assert result.stderr.startswith(
        "classes in the order of the subfolders' names: 0 left, 1 right; --classes FILE"
    )
    Path("names.txt").write_text("right\nleft\n")
    result = doctor("own_models:good", *words, "--classes", "names.txt")
    assert (result.exit_code, result.stderr) == (1, "")
    assert "class 1 of the network is class 0 of the images" in result.stdout
    assert "return logits[:, [1, 0]]" in result.stdout


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("2", "10"), "not in numeric order: class 0 is 10, not 2; --classes"),
        (("2 a", "10 b"), "not in numeric order: class 0 is 10 b, not 2 a; --classes"),
        (("c2", "c10"), "not in numeric order: class 0 is c10, not c2; --classes"),
        (("b2", "c1"), "in the order of the subfolders"),
        (("0.5", "0.25"), "in the order of the subfolders"),
        (("0", "1"), "next:"),
    ],
)
def test_numbers_in_text_order_are_warned_of_unless_the_order_is_given(names, said):
    Path("photos/left").rename(Path("photos", names[0]))
    Path("photos/right").rename(Path("photos", names[1]))
    words = ("own_models:good", "--images", "photos", "--sigma", 0.1)
    stderr = doctor(*words).stderr
    assert said in stderr
    assert ("numeric" in stderr) == ("numeric" in said)
    assert stderr.startswith("next:") == (said == "next:")
    Path("names.txt").write_text("\n".join(names))
    assert doctor(*words, "--classes", "names.txt").stderr.startswith("next:")


@pytest.mark.parametrize(
    ("words", "message"),
    [("--crop 4", "are for --images"), ("--sigma -0.1", "--sigma must be a positive number, got")],
)
def test_an_option_that_would_count_for_nothing_is_refused(words, message):
    result = doctor("own_models:good", "--data", "data", *words.split())
    assert message in str(result.exception)


def test_a_model_folder_is_looked_at_without_images():
    save_model(Path("model"))
    result = doctor("model")
    assert (result.exit_code, "no images were given" in result.stdout.splitlines()[-1]) == (0, True)
