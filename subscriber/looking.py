"""Looking at the callbacks that run: which one, with which message, where it is.

Nothing is noted message by message for it: the stacks of the threads tell. Of each push it is noted that, and since
when, a thread is at it.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import trio

from delivery.model import Message
from delivery.rpc.protocol import load_idl

STACK_MAX: Final = 8_000
"""Characters of a stack that are told; the innermost calls are the last of it."""
LOOK_SECONDS: Final = 0.5
LOOKS: Final = 10

_OWN: Final = str(Path(__file__).parent)

Place = tuple[str, int]
"""Queue and partition."""
Frames = list[tuple[FrameType, int]]
"""Outermost first, each with the line that it is at."""


class At:
    """See `Lookout.at`. A class, for a generator takes five times as long, and each push comes through here."""

    __slots__ = ("_before", "_busy", "_place", "_thread")

    def __init__(self, busy: dict[int, tuple[Place, float]], place: Place) -> None:
        self._busy, self._place = busy, place

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._before = self._busy.get(self._thread)
        self._busy[self._thread] = (self._place, time.monotonic())

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del self._busy[self._thread]
        else:
            self._busy[self._thread] = self._before


class Lookout:
    """Knows which threads are at a push. `awaited(thread)`: the task of the async callback that a thread waits for."""

    def __init__(self, awaited: Callable[[int], trio.lowlevel.Task | None]) -> None:
        self._awaited = awaited
        self._made = load_idl("subscriber").Running
        self._busy: dict[int, tuple[Place, float]] = {}

    def at(self, queue: str, partition: int) -> At:
        """The calling thread is at a push, as long as the context lasts."""
        return At(self._busy, (queue, partition))

    async def look(self) -> list[Any]:
        """What runs now, as Running of the IDL. On the trio thread; takes LOOK_SECONDS, to see whether it moves on."""
        before = {thread: self._message(thread) for thread in list(self._busy)}
        moving: set[int] = set()
        for _ in range(LOOKS if before else 0):
            await trio.sleep(LOOK_SECONDS / LOOKS)
            moving |= {thread for thread, message in before.items() if self._message(thread) != message}
            if len(moving) == len(before):
                break
        busy = [(thread, at) for thread in before if (at := self._busy.get(thread)) is not None]
        return [self._running(thread, *at, moving=thread in moving) for thread, at in busy]

    def _message(self, thread: int) -> tuple[float, int]:
        """When the thread's push was begun, and the message that it is at."""
        busy = self._busy.get(thread)
        return (0.0, 0) if busy is None else (busy[1], _message_in(self._frames(thread)))

    def _running(self, thread: int, place: Place, since: float, *, moving: bool) -> Any:  # noqa: ANN401 - of the IDL
        queue, partition = place
        frames = self._frames(thread)
        inside = _inside(frames)
        stack = "".join(traceback.format_list(traceback.StackSummary.extract(iter(inside))))
        return self._made(
            name=_name(frames, inside), queue=queue, partition=partition, message=_message_in(frames),
            seconds=time.monotonic() - since, moving=moving, stack=stack[-STACK_MAX:], held=False,
        )  # fmt: skip

    def _frames(self, thread: int) -> Frames:
        """Of the thread, and behind them those of the async callback that it waits for."""
        innermost = sys._current_frames().get(thread)  # noqa: SLF001 - the documented name of it
        frames = list(traceback.walk_stack(innermost))[::-1] if innermost is not None else []
        task = self._awaited(thread)
        waits = next((at for at, (frame, _) in enumerate(frames) if _hops(frame)), None)
        return frames if task is None or waits is None else frames[:waits] + list(task.iter_await_frames())


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN)


def _hops(frame: FrameType) -> bool:
    """Whether the thread waits there for an async callback."""
    return frame.f_code.co_name == "hop" and _is_own(frame)


def _inside(frames: Frames) -> Frames:
    """What runs behind the last frame of this package: the application's."""
    own = max((at for at, (frame, _) in enumerate(frames) if _is_own(frame)), default=-1)
    return frames[own + 1 :]


def _name(frames: Frames, inside: Frames) -> str:
    """Of the callback: the outermost of the application's frames, or what was called, when that has no frame."""
    if inside:
        frame, _ = inside[0]
        return f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_code.co_firstlineno})"
    for frame, _ in reversed(frames):
        if (call := frame.f_locals.get("call")) is not None and _is_own(frame):
            return str(getattr(call, "__qualname__", None) or type(call).__qualname__)
    return "a listener"


def _message_in(frames: Frames) -> int:
    """The message that the innermost of our frames is at: each pass over messages holds it under one of these names."""
    for frame, _ in reversed(frames):
        if _is_own(frame):
            for name in ("message", "at", "first"):
                if isinstance(found := frame.f_locals.get(name), Message):
                    return found.number
    return 0
