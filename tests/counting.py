"""Counts what Python executes, instruction by instruction, where a clock would tell of the machine's other work."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

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


@contextmanager
def counted(*folders: str, threads: bool = True) -> Iterator[Instructions]:
    """Count in this thread, and in those that are started meanwhile unless that is not wanted."""
    found, before = Instructions(*folders), sys.gettrace()
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
