"""The console command ``rs``, as a person runs it."""

import importlib
import tomllib
from importlib import metadata

import pytest
from typer.testing import CliRunner

from rs.command_line.main import app, main
from tests.support.helpers import ROOT, help_of, python

STAGES = {"certify": "certify", "predict": "predict", "import": "import_", "export": "export"}
COMMANDS = ["certify", "show", "compare", "predict", "import", "export"]


def said(*words):
    """Exit code of ``rs WORDS``, and what it prints on stdout and on stderr."""
    result = CliRunner().invoke(app, words, prog_name="rs")
    return result.exit_code, result.stdout, result.stderr


def test_the_project_declares_the_command():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = declared["rs"].partition(":")
    assert getattr(importlib.import_module(module), name) is main


def test_help_says_each_command_in_one_whole_sentence():
    code, out, err = said("--help")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: rs [OPTIONS] COMMAND [ARGS]...\n")
    listed = out[out.index("Commands:") :].split("\n", 1)[1]
    assert [line.split()[0] for line in listed.splitlines() if line[2:3].strip()] == COMMANDS
    assert "..." not in listed


def test_no_words_are_answered_by_the_help_and_exit_code_2():
    code, out, err = said()
    assert code == 2
    assert said("--help")[1].strip() in out + err


def test_the_version_is_that_of_the_installed_project():
    assert said("--version") == (0, f"rs {metadata.version('rs')}\n", "")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["certfy"], "No such command 'certfy'. Did you mean 'certify'?"),
        (["train"], "No such command 'train'"),
        (["certify", "--drws", "3"], "--draws"),
        (["export", "nowhere.tsv", "--out", "log.tsv"], "'nowhere.tsv' does not exist"),
        (["predict", "photo.png"], "Missing option '--model'"),
        (["import", "c.pth", "--sigma", "much"], "Invalid value for '--sigma'"),
    ],
)
def test_a_mistyped_word_is_named_with_what_helps_and_exit_code_2(words, remedy):
    code, out, err = said(*words)
    assert (code, out) == (2, "")
    assert remedy in err


@pytest.mark.parametrize("module", STAGES.values())
def test_a_stage_runs_the_function_of_the_command(module):
    stage, command = (importlib.import_module(f"{package}.{module}") for package in ("stages", "rs.command_line"))
    assert stage.main is command.main


@pytest.mark.parametrize("command", [(), *[(name,) for name in COMMANDS]], ids=str)
def test_help_comes_without_loading_what_computes(command):
    done = python(
        "-c",
        f"import sys; sys.argv = ['rs', *{command!r}, '--help']\n"
        "from rs.command_line.main import main\n"
        "try: main()\n"
        "finally: print(sorted({'torch', 'numpy', 'pandas', 'scipy'} & set(sys.modules)))",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(" ".join(["Usage: rs", *command, "[OPTIONS]"]))
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("stage", sorted(path.stem for path in (ROOT / "stages").glob("[!_]*.py")))
def test_every_stage_has_a_help_page_that_comes_at_once(stage):
    done = help_of(stage)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert done.stdout.startswith(f"Usage: stages.{stage} [OPTIONS]")
