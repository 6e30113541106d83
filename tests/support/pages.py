"""What the pages show: blocks of commands and of Python, and the commands as words."""

import importlib
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from typer.main import get_command

from rs.command_line import main as rs_command
from rs.command_line.shell import add_command, application

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

BLOCK = re.compile(
    r"(?:^<!-- not run: ([^\n]*) -->\n)?^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
END = "\n; "
"""What the end of a line is to the lexer, which takes no line for the end of a command."""
SEPARATORS = {"&&", "||", "|", ";", "&", "(", ")", "$", "<", ">", ">>", "{", "}"}
BEFORE_A_COMMAND = re.compile(r"\w+=.*|do|done|while|if|then|else|!|read")


class Block(NamedTuple):
    reason: str  # why no test runs it; empty if one does
    language: str
    file: str  # that it is the text of, if it is
    text: str


def blocks(page, language="sh"):
    """The blocks of a language on a page."""
    found = [Block(*parts) for parts in BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [block for block in found if block.language == language]


def commands(text):
    """The simple commands of shell text, each as its words, without assignments and redirections.

    >>> list(commands("A=1 dvc pull && rs show a.tsv \\\\\\n  b.tsv  # both\\nx | y"))
    [['dvc', 'pull'], ['rs', 'show', 'a.tsv', 'b.tsv'], ['x'], ['y']]
    """
    text = text.replace("\\\n", " ").replace("\n", END) + END
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    command: list[str] = []
    for word in lexer:
        if word in SEPARATORS:
            if command:
                yield command
            command = []
        elif command or not BEFORE_A_COMMAND.fullmatch(word):
            command.append(word.replace(END, "\n"))  # in quotes a line may end


STANDS_FOR = {
    "...": "--sigma 0.5 --dataset cifar10 --data data/cifar10 --subset '{stride: 20}' "
    "--out dry.tsv",
    "$data": "--dataset cifar10 --data data/cifar10",
    "$seconds": "60",
}
"""Words of pages, and the options of commands before or the variables that they stand for."""


def written_out(words):
    """The words of a command with what they stand for."""
    return [
        word
        for short in words
        for word in (shlex.split(STANDS_FOR[short]) if short in STANDS_FOR else [short])
    ]


def check_typer(command, words):
    """Parse words as a command does, in an empty folder, making the files that must exist."""
    for _ in words:
        try:
            command.make_context(command.name, written_out(words))
            return
        except Exception as error:
            missing = re.search(r"'([^']+)' does not exist", str(error))
            if missing is None:
                raise
            path = Path(missing[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch() if path.suffix else path.mkdir()
    command.make_context(command.name, written_out(words))


def command_of(program, words):
    """Return the Typer command of ``rs WORDS`` or ``python -m PROGRAM WORDS``, and its words."""
    if program == "rs":
        group = get_command(rs_command.app)
        if words[0].startswith("-"):
            return group, words
        return group.commands[words[0]], words[1:]
    add_command(app := application(), importlib.import_module(program).main)
    return get_command(app), words
