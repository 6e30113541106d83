"""The console command ``rs``, as a person runs it."""

import re
import shlex
from importlib import metadata
from typing import get_args

import pytest
from typer.main import get_command

from rs.command_line.main import COMMANDS, app
from rs.errors import DISTRIBUTION
from rs.models import Architecture
from rs.models.architectures import ARCHITECTURES
from tests.support.helpers import ROOT, ended, python, refusal
from tests.support.pages import check_typer


@pytest.fixture
def said(capfd, monkeypatch):
    """Run ``rs WORDS``; the exit code, and what it prints on stdout and on stderr."""
    monkeypatch.setenv("COLUMNS", "80")

    def run_words(*words):
        return ended(capfd, app, *words)

    return run_words


def test_no_words_are_answered_by_the_help_and_exit_code_2(said):
    code, out, err = said()
    assert code == 2
    assert (out + err).strip() == said("--help")[1].strip()


def test_the_version_is_that_of_the_installed_project(said):
    assert said("--version") == (0, f"rs {metadata.version(DISTRIBUTION)}\n", "")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("doctr", "no such command 'doctr'. Did you mean 'doctor'?"),
        ("tables", "no such command 'tables'"),
        ("export nowhere.tsv --out log.tsv", "'nowhere.tsv' does not exist"),
        ("import c.pth --sigma much", "invalid value for '--sigma'"),
    ],
)
def test_a_mistyped_word_is_named_in_one_line_as_every_other_mistake(words, remedy, capfd):
    assert remedy in refusal(capfd, app, *words.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_help_are_commands_of_this_kind(name, tmp_path, monkeypatch, said):
    """They are parsed as the command parses them: its options, choices and files that must be
    there.
    """
    monkeypatch.chdir(tmp_path)
    _, out, _ = said(name, "--help")
    examples = re.sub(r"\\ *\n", " ", re.split(r"\n Example: *\n", out)[1])
    lines = [line for line in examples.splitlines() if line.strip()]
    assert lines
    command = get_command(app).commands[name]
    for line in lines:
        program, first, *words = shlex.split(line)
        assert (program, first) == ("rs", name)
        check_typer(command, words)


def test_every_architecture_that_the_help_names_is_built():
    assert [name for name in ARCHITECTURES if ":" not in name] == [
        *get_args(Architecture)
    ]  # without users' networks


def test_a_shell_completes_the_choices_of_an_option():
    asked = {
        "_RS_COMPLETE": "complete_bash",
        "COMP_WORDS": "rs predict --engine ",
        "COMP_CWORD": "3",
    }
    done = python(
        "-c",
        "import sys; sys.argv = ['rs']; from rs.command_line.main import main; main()",
        **asked,
    )
    assert done.returncode == 0
    assert done.stdout.split() == ["plain", "folded", "compiled", "quantized"]


HELP = """
import contextlib, io, runpy, sys
from pathlib import Path
from rs.command_line.main import COMMANDS, main

HEAVY = {"torch", "torchvision", "numpy", "pandas", "scipy", "sklearn", "matplotlib"}

def show(run, *words):
    sys.argv = [*words, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        run()
    print(shown.getvalue().strip().split(" [OPTIONS]")[0], sorted(HEAVY & set(sys.modules)))

for words in ([], *([name] for name in COMMANDS)):
    show(main, "rs", *words)
for path in sorted(Path("stages").glob("[!_]*.py")):
    name = f"stages.{path.stem}"
    show(lambda: runpy.run_module(name, run_name="__main__"), name)
"""


def test_help_comes_without_loading_what_computes():
    done = python("-c", HELP)
    stages = sorted(path.stem for path in (ROOT / "stages").glob("[!_]*.py"))
    programs = [
        "rs",
        *(f"rs {name}" for name in COMMANDS),
        *(f"stages.{stage}" for stage in stages),
    ]
    assert done.stdout.splitlines() == [f"Usage: {program} []" for program in programs], done.stderr
