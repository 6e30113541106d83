"""How commands end: ``rs.command_line.shell``."""

import errno
import io
from pathlib import Path

import pytest
import torch

from rs.command_line.certify import main as certify
from rs.command_line.train import main as train
from rs.errors import InputError
from rs.runtime.progress import say
from tests.support.helpers import exit_code, python, refusal
from tests.support.stopped import stopped_after

CONTINUES = "interrupted; the same command continues"


def ended(capfd, command, *words):
    """Exit code of a command, and the lines on stdout and on stderr."""
    code = exit_code(command, *words)
    out, err = capfd.readouterr()
    return code, out.splitlines(), err.splitlines()


def certify_to(name):
    words = f"model --dataset tiny --data data --out {name} --device cpu"
    return words.split()


def test_a_warning_of_all_images_is_one_line(tiny_project, capfd):
    """(1/2)^n <= 0.001 first at n = 10."""
    message = (
        "warning: n = 9 samples can never certify at alpha = 0.001: even a unanimous vote "
        "abstains; give n of at least 10"
    )
    for n, expected in ((9, [message]), (10, [])):
        budget = ("--n", n, "--alpha", 0.001)
        code, _, err = ended(capfd, certify, *certify_to(f"{n}.tsv"), *budget)
        assert code == 0
        assert [line for line in err if line.startswith("warning:")] == expected


def test_a_certification_that_is_interrupted_says_that_it_continues_and_does(tiny_project, capfd):
    ended(capfd, certify, *certify_to("whole.tsv"))
    with stopped_after(3):
        interrupted = ended(capfd, certify, *certify_to("rows.tsv"))
    assert interrupted == (130, [], [CONTINUES])  # and no traceback
    assert not Path("rows.tsv").exists()
    code, _, err = ended(capfd, certify, *certify_to("rows.tsv"))
    assert (code, err[0]) == (0, "continuing after 3 of 10 images")
    assert Path("rows.tsv").read_bytes() == Path("whole.tsv").read_bytes()


def test_a_training_has_no_log_in_the_folder_of_its_model(tiny_project, capfd):
    words = "gaussian --dataset tiny --data data --sigma 0.25 --out new --log data/../new"
    assert "--log must be another folder than --out" in refusal(capfd, train, *words.split())
    assert not Path("new").exists()


def test_the_environment_chooses_the_device(tiny_project, monkeypatch, capfd):
    monkeypatch.setenv("RS_DEVICE", "abacus")
    words = "gaussian --dataset tiny --data data --sigma 0.25 --out new --log log"
    assert "got 'abacus'" in refusal(capfd, train, *words.split())


def test_an_error_of_a_model_of_ones_own_is_kept_and_debug_shows_where(
    tiny_project, monkeypatch, capfd
):
    Path("broken_models.py").write_text("def raises():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(Path.cwd())
    words = ["broken_models:raises", "--sigma", "0.25", *certify_to("rows.tsv")[1:]]
    line = refusal(capfd, certify, *words)
    assert "it raised ZeroDivisionError: division by zero; correct it" in line
    code, _, lines = ended(capfd, certify, *words, "--debug")
    assert (code, lines[-1]) == (2, line)
    assert "broken_models.py" in "\n".join(lines)
    assert "Traceback (most recent call last):" in lines


def line_of(capfd, error):
    """The one line in which a command says an error."""

    def command() -> None:
        """Fail."""
        raise error

    return refusal(capfd, command)


def test_what_the_machine_does_not_allow_is_one_line(capfd):
    line = line_of(capfd, OSError(errno.ENOSPC, "full", "some/file"))
    assert line == "error: some/file: full; fix this and run the same command to continue"


@pytest.mark.parametrize(
    "error", [InputError("a\x1b[2J\n.png must"), OSError(errno.EIO, "a\x1b[2J", "a\x1b[2J")]
)
def test_a_name_in_a_message_moves_no_cursor(capfd, error):
    line = line_of(capfd, error)
    assert r"a\x1b[2J" in line
    assert line.isprintable()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("can't allocate memory: you tried"),
    ],
)
def test_too_little_memory_is_one_line(capfd, error):
    line = line_of(capfd, error)
    assert line.startswith("error: out of memory: ")
    assert line.endswith("; lower --batch (in a recipe training.batch), or take smaller images")


def test_what_is_not_the_users_mistake_keeps_its_traceback(capfd):
    with pytest.raises(ZeroDivisionError):
        line_of(capfd, ZeroDivisionError())


@pytest.mark.parametrize("named", [["--params=mine.yaml"], []])
def test_a_mistake_in_the_parameters_names_their_file(tiny_project, capfd, named):
    Path("mine.yaml").write_text(Path("params.yaml").read_text())
    model, _, _, *words = certify_to("rows.tsv")
    _, _, (line,) = ended(capfd, certify, model, "--dataset", "none", *words, *named)
    assert line.startswith(
        f"error: {'mine' if named else 'params'}.yaml must have the key recipes.none; known here"
    )


PRINTS = """
from rs.command_line.shell import run

def command() -> None:
    "Print."
    print("0.5 \u00b1 0.1; rows in b\u00e4.tsv")

run(command)
"""


def test_what_the_encoding_of_the_output_lacks_is_escaped():
    """As of a terminal without UTF-8: a number with its error, and a file's name."""
    done = python("-c", PRINTS, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == r"0.5 \xb1 0.1; rows in b\xe4.tsv" + "\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_a_name_cannot_color_a_line(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    say("\x1b[31mfile.png: class 3", terminal)
    assert "\x1b" not in terminal.getvalue()
