"""Progress: a bar with rate and remaining time on a terminal, a quiet line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
QUIET_SECONDS = 30.0


def progress(items: Iterable[T], total: int, what: str, done: int = 0) -> Iterator[T]:
    """Yield ``items``, and say on stderr how far it is.

    Args:
        items: What remains to be done.
        total: Number of items in all, those done before included.
        what: Name of the work.
        done: Number of items done before.
    """
    if sys.stderr.isatty():
        yield from tqdm(items, total=total, desc=what, initial=done, dynamic_ncols=True)
        return
    start = last = time.monotonic()
    for count, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= QUIET_SECONDS or done + count == total:
            rate = count / max(now - start, 1e-9)
            left = (total - done - count) / rate
            print(
                f"{what}: {done + count}/{total}, {rate:.2f}/s, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
            last = now
