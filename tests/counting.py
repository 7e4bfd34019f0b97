"""Counts what Python executes, instruction by instruction, where a clock would tell of the machine's other work.

And the large blocks of memory that it allocates meanwhile: each is a copy of something.
"""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

TOP = Path(__file__).resolve().parents[1]


class Instructions:
    """Executed since the last `clear`, by function; only those of files in some folders of the source tree."""

    def __init__(self, *folders: str) -> None:
        self._prefixes = tuple(f"{TOP / folder}/" for folder in folders)
        self._counts: Counter[CodeType] = Counter()

    def clear(self) -> None:
        self._counts.clear()

    def by_function(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for code, count in self._counts.copy().items():
            found[f"{Path(code.co_filename).relative_to(TOP)}:{code.co_qualname}"] += count
        return dict(found)

    def called(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        """See sys.settrace: told of each call, and each time that a generator or coroutine goes on."""
        if not frame.f_code.co_filename.startswith(self._prefixes):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._within

    def _within(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode":
            self._counts[frame.f_code] += 1
        return self._within


class Allocations(Instructions):
    """Bytes allocated at a stretch, by the function that did, where they are many enough; needs tracemalloc.

    What is seen is how memory grows from one instruction to the next, so nobody else may allocate as much meanwhile.
    """

    def __init__(self, least: int, *folders: str) -> None:
        super().__init__(*folders)
        self._least, self._before = least, 0
        self._looking = threading.Lock()
        self._last: dict[int, CodeType] = {}
        """By thread."""

    def _within(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode":
            thread = threading.get_ident()
            with self._looking:  # or two threads would both see what one of them has allocated
                now = tracemalloc.get_traced_memory()[0]
                grown, self._before = now - self._before, now
            if grown >= self._least:
                self._counts[self._last.get(thread, frame.f_code)] += grown
            self._last[thread] = frame.f_code
        return self._within


T = TypeVar("T", bound=Instructions)


@contextmanager
def counted(*folders: str, threads: bool = True) -> Iterator[Instructions]:
    """Count in this thread, and in those that are started meanwhile unless that is not wanted."""
    with watched(Instructions(*folders), threads=threads) as found:
        yield found


@contextmanager
def allocated(least: int, *folders: str) -> Iterator[Allocations]:
    """Count blocks of at least so many bytes, in this thread and in those that are started meanwhile."""
    tracemalloc.start()
    try:
        with watched(Allocations(least, *folders)) as found:
            yield found
    finally:
        tracemalloc.stop()


@contextmanager
def watched(found: T, *, threads: bool = True) -> Iterator[T]:
    """Have it told of everything that is executed."""
    before = sys.gettrace()
    sys.settrace(found.called)
    if threads:
        threading.settrace(found.called)
    try:
        yield found
    finally:
        threading.settrace(None)
        sys.settrace(before)


def grown(few: dict[str, int], many: dict[str, int], messages: int) -> dict[str, float]:
    """The instructions for each of so many further messages, by function, where there is a tenth of one at least."""
    found = {name: round((count - few.get(name, 0)) / messages, 2) for name, count in many.items()}
    return {name: each for name, each in found.items() if each >= 0.1}
