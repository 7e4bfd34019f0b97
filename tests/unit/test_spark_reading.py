"""What vanishes of a read is an error when it was not read yet, and none when it was."""

from __future__ import annotations

from typing import Any, cast

import pytest

from delivery.client.calls import Calls
from delivery.metastore.catalog import Catalog
from delivery.spark.planning import Engine
from delivery.spark.ranges import Span
from delivery.spark.reading import CHECKED_AT_ONCE, MessagesLost, Watched

SPAN = Span("orders", 0, 0, 100, 100)


class Trimmed:
    """A host with a partition whose ids go up to 100, and whose retention drops the first ones."""

    def __init__(self) -> None:
        self.dropped = 0

    def call(self, queue: str, partition: int, method: str, *args: Any, timeout: float) -> int:
        assert method == "countMessages"
        after, until = cast("tuple[int, int]", args[2:])
        return max(0, until - max(after, self.dropped))


@pytest.fixture
def host() -> Trimmed:
    return Trimmed()


@pytest.fixture
def watched(host: Trimmed) -> Watched:
    calls = cast("Calls", host)
    return Watched(Engine(lambda: cast("Catalog", None), calls, calls, 0), SPAN)


def read(watched: Watched, host: Trimmed, behind: int) -> None:
    """Read all, a message at a time, while retention is so far behind the reader."""
    for position in range(1, SPAN.until + 1):
        host.dropped = max(0, position - behind)
        watched.passed(position)
    watched.check()


def test_what_vanishes_behind_a_reader_is_not_lost(watched: Watched, host: Trimmed) -> None:
    read(watched, host, behind=CHECKED_AT_ONCE)
    host.dropped = 100
    watched.check()


@pytest.mark.parametrize("behind", [-1, -5])
def test_what_vanishes_before_a_reader_is_lost(watched: Watched, host: Trimmed, behind: int) -> None:
    with pytest.raises(MessagesLost, match=r"of 100 messages of orders/0 .* vanished before they were read"):
        read(watched, host, behind)


def test_a_read_that_ends_since_the_rest_vanished_has_lost_it(watched: Watched, host: Trimmed) -> None:
    watched.passed(30)
    host.dropped = 100
    with pytest.raises(MessagesLost):
        watched.check()
