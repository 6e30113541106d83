"""Progress on stderr: a bar on a terminal, otherwise a line every half minute."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

from tqdm import tqdm

from rs.errors import printable

T = TypeVar("T")
QUIET_SECONDS = 30.0

WIDTH = 80
"""Columns of a terminal of the usual size."""

JOINT = "\N{NO-BREAK SPACE}"
"""Character between a number and its sign while a line is broken."""

COLORS = {
    "error": 31,
    "fault": 31,
    "warning": 33,
    "not tested": 33,
    "ok": 32,
    "next": 36,
    "verdict": 35,
}
"""Colors (ANSI) of words that begin a line and end with a colon."""


def duration(seconds: float) -> str:
    """Write a time in its natural unit.

    >>> duration(55800.0), duration(90.0), duration(2.5)
    ('15.5 h', '1.5 min', '2.5 s')
    """
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def wrapped(line: str, width: int = WIDTH, indent: str = "") -> list[str]:
    """Return a line as lines of at most ``width`` characters, if its words are not longer.

    >>> wrapped("class 3, p >= 0.98", width=14, indent="  ")
    ['class 3,', '  p >= 0.98']
    """
    joined = re.sub(" (>=|=|±) ", f"{JOINT}\\1{JOINT}", line)
    parts = textwrap.wrap(
        joined, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [part.replace(JOINT, " ") for part in parts]


def say(text: str, stream: TextIO | None = None, *, whole: bool = False) -> None:
    """Print a line at once, by default on stdout, above the bar if there is one.

    Characters are escaped as by :func:`rs.errors.printable`. A first word of :data:`COLORS` is
    colored on a terminal, unless the variable NO_COLOR is set. A line that is longer than the
    terminal is wide, or than the variable COLUMNS says, is broken between words. Errors and
    warnings on stderr stay one line, which people search for.

    Args:
        text: The line.
        stream: Where it is printed.
        whole: Whether the line is never broken.
    """
    stream = stream or sys.stdout
    line = printable(text)
    word, colon, _ = line.partition(":")
    if stream is sys.stderr and word in ("error", "warning"):
        whole = True
    has_columns = stream.isatty() or "COLUMNS" in os.environ
    if has_columns and not whole:
        line = "\n".join(wrapped(line, shutil.get_terminal_size().columns, indent="  "))
    color = COLORS.get(word.lower())
    if colon and color and stream.isatty() and not os.environ.get("NO_COLOR"):
        line = f"\033[1;{color}m{word}:\033[0m{line[len(word) + 1 :]}"
    tqdm.write(line, file=stream)
    stream.flush()


def say_next(*commands: str) -> None:
    """Say on stderr which commands may follow; each has its own lines if one line is too short."""
    line = f"next: {', or '.join(commands)}"
    if len(line) <= WIDTH:
        say(line, sys.stderr)
        return
    say("next:", sys.stderr)
    for command in commands:
        for part in shell_lines(command):
            say(f"  {part}", sys.stderr, whole=True)


def shell_lines(command: str, width: int = WIDTH - 2) -> list[str]:
    r"""Return a command as lines that a shell joins, broken before options only.

    >>> print("\n".join(shell_lines("rs certify model --data data --out rows.tsv", 30)))
    rs certify model --data data \
        --out rows.tsv
    """
    first, *options = re.split(" (?=--)", command)
    lines = [first]
    for option in options:
        if len(f"{lines[-1]} {option} \\") <= width:
            lines[-1] += f" {option}"
        else:
            lines[-1] += " \\"
            lines.append(f"    {option}")
    return lines


def progress(
    items: Iterable[T],
    total: int | None,
    description: str,
    done: int = 0,
    *,
    always: bool = True,
    details: Callable[[], str] | None = None,
) -> Iterator[T]:
    """Yield ``items`` and report the progress on stderr.

    Args:
        items: The remaining items; the next one is requested when the last one is done.
        total: Number of all items, including those done before; ``None`` if it is unknown.
        description: Name of the work.
        done: Number of items done before.
        always: Whether work of less than half a minute prints a line, too, where there is no
            terminal.
        details: Returns what the last item gave.
    """
    if sys.stderr.isatty():
        bar = tqdm(
            items, total=total, desc=printable(description), initial=done, dynamic_ncols=True
        )
        for item in bar:
            yield item
            if details is not None:
                bar.set_postfix_str(printable(details()))
        return
    start = last = time.monotonic()
    for count, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= QUIET_SECONDS or (done + count == total and (always or last > start)):
            rate = count / max(now - start, 1e-9)
            line = f"{description}: {done + count}, {rate:.2f}/s"
            if total is not None:
                left = (total - done - count) / rate
                line = f"{description}: {done + count}/{total}, {rate:.2f}/s, {left:.0f} s left"
            if details is not None:
                line = f"{line}; {details()}"
            say(line, sys.stderr)
            last = now
