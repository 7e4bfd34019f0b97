"""What the hot path executes for a message, counted: nothing in a host, a small constant elsewhere; and what it holds.

A clock would tell this only on a quiet machine. When one of these fails, its message names the functions that grew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.counting import grown
from tests.unit.counted_client import instructions_of_a_put_many, instructions_of_a_subscriber, instructions_of_puts
from tests.unit.counted_host import COUNTED, copies_in_a_host, instructions_of_a_host
from tests.unit.counted_http import instructions_over_http

FEW, MANY = 100, 1000
"""Messages in a batch."""
PER_MESSAGE, PER_PUT, PER_POLLED = 16, 85, 46
"""Of instructions: a quarter more than there are, since versions of Python differ by some."""
COPIES, COPIES_READ = 3.5, 2.3
"""A batch is cut out of its frame, copied for its checksum, given the owner's header; then read and checked again."""


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


def test_a_put_many_of_bodies_executes_nothing_for_a_message() -> None:
    few, many = (instructions_of_a_put_many(count) for count in (FEW, MANY))
    assert many["delivery/client/publisher.py:Publisher.put_many"], "it is counted"
    assert not excess(few, many, 1, 1)


@pytest.mark.parametrize(
    ("tail_bytes", "most"), [(1 << 20, COPIES), (0, COPIES + COPIES_READ)], ids=["from memory", "from the log"]
)
@pytest.mark.parametrize("topics", [(), ("news",)], ids=["everything", "a topic"])
def test_a_host_copies_a_batch_a_few_times(
    tmp_path: Path, topics: tuple[str, ...], tail_bytes: int, most: float
) -> None:
    copies = copies_in_a_host(tmp_path, topics=topics, tail_bytes=tail_bytes)
    assert copies["delivery/batch/layout.py:stamp"] >= 1, "the one for the owner's header is counted"
    assert sum(copies.values()) < most, copies


def test_over_http_a_publish_executes_nothing_for_a_message_and_a_poll_a_small_constant() -> None:
    (few_published, few_polled), (published, polled) = instructions_over_http(FEW), instructions_over_http(MANY)
    assert published["delivery/api/rest/exchange.py:Exchange.publish"], "the publish is counted"
    assert polled["delivery/api/rest/streams.py:Blocks.add"] > MANY, "the poll is counted"
    assert not excess(few_published, published, 1, 1)
    assert not excess(few_polled, polled, 1, PER_POLLED)
