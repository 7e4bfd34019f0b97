"""A one-shot watch is told of what changed, also when the first look at it failed and there is much else to look at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from delivery.errors import MetadataUnavailable
from delivery.metastore.tables import watching
from delivery.metastore.tables.base import Found, WatchEvent
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.tables.watching import OneShots

SEEN = Versioned(Value({"f": b"x"}), Version(0))


class Hinting:
    """Standing watches of which a test says when they give a hint; at first none does."""

    def __init__(self) -> None:
        self.hints: dict[str, Callable[[], None]] = {}

    def watch_value(self, path: str, hint: Callable[[], None]) -> None:
        self.hints[path] = hint

    def unwatch(self, path: str, hint: Callable[[], None] | None = None) -> None:
        self.hints.pop(path, None)


def test_a_look_that_failed_is_repeated_in_its_time_although_hints_about_others_never_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0.05)
    hinting, told, failures = Hinting(), threading.Event(), [MetadataUnavailable("no answer")]
    shots, events = OneShots(hinting), list[WatchEvent]()

    def look_at_gone(keys: Sequence[str]) -> list[Found]:
        if failures:
            raise failures.pop()
        return [None for _ in keys]

    def look_at_busy(keys: Sequence[str]) -> list[Found]:
        hinting.hints["busy"]()
        return [SEEN for _ in keys]

    def gone(event: WatchEvent) -> None:
        events.append(event)
        told.set()

    shots.add([("gone", SEEN, gone)], str, look_at_gone)
    shots.add([("busy", SEEN, events.append)], str, look_at_busy)
    try:
        hinting.hints["gone"]()
        hinting.hints["busy"]()
        assert told.wait(10)
        assert (events, failures) == ([WatchEvent.DELETED], [])
    finally:
        shots.close()
