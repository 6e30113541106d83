"""Progress on stderr: a bar on a terminal, otherwise a line every half minute."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

from tqdm import tqdm

from rs.errors import printable

T = TypeVar("T")
QUIET_SECONDS = 30.0

COLORS = {"error": 31, "fault": 31, "warning": 33, "ok": 32, "next": 36, "verdict": 35}
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


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line at once, by default on stdout, above the bar if there is one.

    Characters are escaped as by :func:`rs.errors.printable`. A first word of :data:`COLORS` is
    colored on a terminal, unless the variable NO_COLOR is set.
    """
    stream = stream or sys.stdout
    line = printable(text)
    word, colon, rest = line.partition(":")
    color = COLORS.get(word.lower())
    if colon and color and stream.isatty() and not os.environ.get("NO_COLOR"):
        line = f"\033[1;{color}m{word}:\033[0m{rest}"
    tqdm.write(line, file=stream)
    stream.flush()


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
