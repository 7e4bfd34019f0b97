"""Scanning queues of a real region host: where scanners begin and end, what they skip and what they wait for."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

from delivery import MessageId, Queue
from delivery.errors import InvalidRequest, ScannerClosed, UnknownPartition

pytestmark = pytest.mark.integration
SECONDS = 30.0


@pytest.fixture
def filled(queue: Queue) -> list[tuple[MessageId, bytes]]:
    """30 messages in two partitions, some with a topic, in the order in which they were stored."""
    stored = []
    for number in range(30):
        one = queue.put(b"%d" % number, partition=number % 2, topic="three" if number % 3 == 0 else "")
        stored.append((one.id, b"%d" % number))
    return stored


def bodies(messages: object) -> list[bytes]:
    return [message.body for message in messages]  # type: ignore[attr-defined]


def test_a_queue_scanner_merges_all_partitions_by_id(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    found = [(message.id, message.body) for message in queue.scanner()]
    assert sorted(found) == sorted(filled)
    assert [one for one, _ in found] == sorted(one for one, _ in found)


def test_scanners_of_partitions(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    assert bodies(queue.partition_scanner(1)) == [body for _, body in filled[1::2]]
    assert bodies(queue.combined_scanner([0])) == [body for _, body in filled[::2]]
    assert sorted(bodies(queue.combined_scanner([1, 0, 1]))) == sorted(body for _, body in filled)
    with pytest.raises(UnknownPartition):
        queue.partition_scanner(2)
    with pytest.raises(InvalidRequest):
        queue.combined_scanner([])


def test_start_and_stop_are_ids_times_or_ends(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    mine = filled[::2]
    first, last = mine[3][0], mine[9][0]
    assert bodies(queue.partition_scanner(0, start=first, stop=last)) == [body for _, body in mine[3:9]]
    assert bodies(queue.partition_scanner(0, start=int(first))) == [body for _, body in mine[3:]]
    assert bodies(queue.partition_scanner(0, start=first.time)) == [
        body for one, body in mine if one.timestamp_ms >= first.timestamp_ms
    ]
    assert bodies(queue.partition_scanner(0, stop="latest")) == [body for _, body in mine]
    assert bodies(queue.partition_scanner(0, start="latest")) == []
    assert bodies(queue.partition_scanner(0, start=last, stop=first)) == []


def test_a_start_in_the_future_is_refused(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    for start in (datetime.now(UTC) + timedelta(hours=1), MessageId.of(2**43), 2**62 - 1):
        with pytest.raises(InvalidRequest, match="future"):
            queue.partition_scanner(0, start=start)
    for nonsense in ("soon", -1, 2**63, True, None):
        with pytest.raises(InvalidRequest, match="no place"):
            queue.partition_scanner(0, start=nonsense)


def test_topics_choose(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    assert sorted(bodies(queue.scanner(topics=["three"]))) == sorted(b"%d" % n for n in range(0, 30, 3))
    assert bodies(queue.scanner(topics=["none"])) == []


def test_the_end_is_not_for_ever(queue: Queue) -> None:
    scanner = queue.scanner()
    assert scanner.next() is None
    queue.put(b"later")
    assert bodies([scanner.next()]) == [b"later"]
    assert scanner.next() is None


def test_lists_have_the_size_asked_for(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    with queue.partition_scanner(0) as scanner:
        assert bodies(scanner.get_list(4)) == [body for _, body in filled[::2]][:4]
        assert len(scanner.next_batch(100)) == 11
        assert scanner.next_batch(100) == []
        for count in (0, -1, 10**6):
            with pytest.raises(InvalidRequest):
                scanner.next_batch(count)


@pytest.mark.parametrize("kind", ["partition", "queue"])
def test_closing_twice_is_fine_and_next_after_it_is_an_error(queue: Queue, kind: str) -> None:
    scanner = queue.partition_scanner(0) if kind == "partition" else queue.scanner()
    scanner.close()
    scanner.close()
    with pytest.raises(ScannerClosed):
        scanner.next()
    with pytest.raises(ScannerClosed):
        scanner.next_batch(1)


@pytest.mark.parametrize("kind", ["partition", "queue"])
def test_following_waits_for_what_comes(queue: Queue, kind: str) -> None:
    options = {"start": "latest", "follow": True}
    scanner = queue.partition_scanner(0, **options) if kind == "partition" else queue.scanner(**options)
    assert scanner.next(timeout=0.05) is None
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(bodies([scanner.next(SECONDS) for _ in range(2)])))
    reader.start()
    queue.put(b"one", partition=0)
    queue.put(b"two", partition=0)
    reader.join(SECONDS)
    assert found == [b"one", b"two"]
    assert scanner.next(timeout=0.05) is None
    scanner.close()


def test_closing_ends_a_scanner_that_waits(queue: Queue) -> None:
    scanner, ended = queue.partition_scanner(0, follow=True), threading.Event()

    def wait() -> None:
        with pytest.raises(ScannerClosed):
            scanner.next()
        ended.set()

    threading.Thread(target=wait).start()
    scanner.close()
    assert ended.wait(SECONDS)


def test_a_following_scanner_that_has_its_stop_ends(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    stop = filled[4][0]
    assert bodies(queue.partition_scanner(0, stop=stop, follow=True)) == [body for _, body in filled[:4:2]]


def test_large_queues_are_read_whole(queue: Queue) -> None:
    sent = [os.urandom(200) for _ in range(20_000)]
    queue.put_many(sent)
    assert sorted(bodies(queue.scanner())) == sorted(sent)
