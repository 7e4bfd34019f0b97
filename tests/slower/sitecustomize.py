"""A slower world: what every Python of a test run does first when this folder is on its path (`make test-slower`).

On a quiet machine a watch of ZooKeeper, a flush and a thread's turn come at once, and always in the same order. On a
busy one they come late, each by another time; what holds only in the first world passes for months, and then it does
not. Here each takes longer than it has to, at random, in the tests' own processes, hosts, subscribers and Spark's.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

WATCH_SECONDS: Final = 0.3
"""A watch is heard so late at most."""
FLUSH_PART, FLUSH_SECONDS = 0.2, 0.03
"""So many of the flushes to the disk take up to so much longer."""
HOP_PART, HOP_SECONDS = 0.03, 0.03
"""The same, before and after what trio has done in a thread."""

_chance = random.Random()  # not the module's own, of which some tests set the seed
_never = threading.Event()


def _dawdle(part: float, longest: float) -> None:
    if _chance.random() < part:
        _never.wait(_chance.random() * longest)


def _slow_flush(flush: Callable[[int], None]) -> Callable[[int], None]:
    def slow(file: int) -> None:
        _dawdle(FLUSH_PART, FLUSH_SECONDS)
        flush(file)

    return slow


def _slow_watches(kazoo: ModuleType) -> None:
    """Late, and still one after another, as kazoo promises."""
    handler = kazoo.SequentialThreadingHandler
    dispatch = handler.dispatch_callback

    def late(self: object, callback: Any) -> None:
        due = time.monotonic() + _chance.random() * WATCH_SECONDS

        def call(*event: object) -> None:
            _never.wait(max(0.0, due - time.monotonic()))
            callback.func(*event)

        dispatch(self, callback._replace(func=call) if callback.type == "watch" else callback)

    handler.dispatch_callback = late


def _slow_hops(threads: ModuleType) -> None:
    run_sync = threads.to_thread_run_sync

    @functools.wraps(run_sync)
    async def late(function: Callable[..., object], *args: object, **options: Any) -> object:
        def call(*args: object) -> object:
            _dawdle(HOP_PART, HOP_SECONDS)
            try:
                return function(*args)
            finally:
                _dawdle(HOP_PART, HOP_SECONDS)

        given: Awaitable[object] = run_sync(functools.wraps(function)(call), *args, **options)
        return await given

    vars(threads)["to_thread_run_sync"] = late


class _Slowing(MetaPathFinder):
    """Slows modules down when they are imported: importing them here would cost every process what few need."""

    _slow: Final = {"kazoo.handlers.threading": _slow_watches, "trio._threads": _slow_hops}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:  # fmt: skip
        if name not in self._slow:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            load: Callable[[ModuleType], None] = spec.loader.exec_module

            def load_slow(module: ModuleType) -> None:
                load(module)
                self._slow[name](module)

            spec.loader.exec_module = load_slow  # type: ignore[method-assign]
        return spec


os.fsync, os.fdatasync = _slow_flush(os.fsync), _slow_flush(os.fdatasync)  # type: ignore[assignment]
sys.meta_path.insert(0, _Slowing())
