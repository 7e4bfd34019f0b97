"""What the hot path executes for a message, counted: nothing in a host, a small constant in publisher and subscriber.

A clock would tell this only on a quiet machine. When one of these fails, its message names the functions that grew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.counting import grown
from tests.unit.counted_client import instructions_of_a_subscriber, instructions_of_puts
from tests.unit.counted_host import COUNTED, instructions_of_a_host

FEW, MANY = 100, 1000
"""Messages in a batch."""
PER_MESSAGE, PER_PUT = 16, 85
"""Of instructions: a quarter more than there are, since versions of Python differ by some."""


def excess(few: dict[str, int], many: dict[str, int], batches: int, each: int) -> dict[str, float]:
    """What was executed for the further messages, by function, if it is more than `each` times their number."""
    further = batches * (MANY - FEW)
    return {} if sum(many.values()) - sum(few.values()) < each * further else grown(few, many, further)


@pytest.mark.parametrize("tail_bytes", [1 << 20, 0], ids=["from memory", "from the log"])
@pytest.mark.parametrize("topics", [(), ("news",)], ids=["everything", "a topic"])
def test_a_host_executes_nothing_for_a_message(tmp_path: Path, topics: tuple[str, ...], tail_bytes: int) -> None:
    few, many = (
        instructions_of_a_host(tmp_path / str(count), count, topics=topics, tail_bytes=tail_bytes)
        for count in (FEW, MANY)
    )
    assert many["delivery/publish/writer.py:PartitionWriter.take"], "the host's path is counted"
    crept_in = excess(few, many, COUNTED, 1)
    assert not crept_in


def test_a_subscriber_executes_a_small_constant_for_a_message() -> None:
    few, many = (instructions_of_a_subscriber(count) for count in (FEW, MANY))
    assert many["subscriber/listeners.py:_each"] > MANY, "the callbacks' loop is counted"
    crept_in = excess(few, many, 1, PER_MESSAGE)
    assert not crept_in


def test_a_put_executes_a_small_constant() -> None:
    few, many = (instructions_of_puts(count) for count in (FEW, MANY))
    assert many["delivery/client/publisher.py:Publisher.put"] > MANY, "the puts are counted"
    crept_in = excess(few, many, 1, PER_PUT)
    assert not crept_in
