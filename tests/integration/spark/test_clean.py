"""The job that ends invalid transactions: what they left is never seen, though nobody remembers them. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from delivery import Client, NewMessage, connect, wall
from delivery.errors import HootError, StorageUnavailable, UnknownQueue
from delivery.messaging.marks import header
from delivery.spark.jobs.cleaning import Cleaned, Job, look_through
from delivery.spark.planning import Engine as Hosts, engine
from delivery.spark.ranges import Span
from tests.integration.engine import Engine

pytestmark = [pytest.mark.integration, pytest.mark.spark]

HOUR = 3_600_000


@pytest.fixture
def hosts(running: Engine) -> Iterator[Hosts]:
    with engine(running.address) as found:
        yield found


def run(hosts: Hosts, hours: int = 27, *, dry_run: bool = False) -> Cleaned:
    """A job so many hours from now."""
    job = Job(hosts, wall.ms() + hours * HOUR)

    def spread(spans: Sequence[Span]) -> list[list[int]]:
        return [look_through(hosts, span, frozenset(job.candidates)) for span in spans]

    return job.run(spread, 1, lambda *_: None, dry_run=dry_run)


def committed(client: Client, queue: str) -> list[bytes]:
    with client.queue(queue).scanner(start="earliest", isolation="committed") as scanner:
        return [message.body for message in scanner]


def left(client: Client, queue: str, partitions: Sequence[int]) -> int:
    """An invalid transaction with messages in some partitions."""
    with client.transaction() as tx:
        tx.publish(queue, b"committed", partition=0)
    pointer = client.transactions.begin(60_000).pointer
    messages = [NewMessage(b"left", headers={"a": b"b", **header(pointer)}, partition=one) for one in partitions]
    client.queue(queue).put_many([*messages, NewMessage(b"plain", partition=0)])
    client.transactions.invalidate(pointer)
    return pointer


def is_invalid(client: Client, pointer: int) -> bool:
    return pointer in [one.pointer for one in client.transactions.all()]


def test_what_is_left_of_an_invalid_transaction_is_rolled_back_and_nobody_has_to_remember_it(
    running: Engine, hosts: Hosts
) -> None:
    with connect(running.address) as client:
        client.create_queue("cleaned", partitions=3)
        run(hosts)  # of what other tests have left
        pointer, empty = left(client, "cleaned", [0, 2]), client.transactions.begin(60_000).pointer
        client.transactions.invalidate(empty)
        seen = committed(client, "cleaned")
        assert sorted(seen) == [b"committed", b"plain"]
        assert run(hosts, hours=25) == Cleaned(invalid=2, young=2, ended=0, rolled_back=0, scanned=0, taken=0)
        told = run(hosts, dry_run=True)
        assert (told.invalid, told.young, told.ended, told.rolled_back) == (2, 0, 2, 2)
        assert told.scanned >= 4
        assert is_invalid(client, pointer), "nothing is done"
        assert run(hosts) == told
        assert not is_invalid(client, pointer)
        assert not is_invalid(client, empty)
        assert client.transactions.standing(pointer) == "aborted"
        assert committed(client, "cleaned") == seen
        assert run(hosts).ended == 0


@pytest.mark.parametrize("error", [StorageUnavailable("the disk is full"), UnknownQueue("it is deleted")])
def test_what_cannot_be_rolled_back_stays_invalid_unless_its_queue_is_gone(
    running: Engine, hosts: Hosts, error: HootError, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(running.address) as client:
        queue = f"unable-{error.code.replace('_', '-')}"
        client.create_queue(queue)
        pointer, call = left(client, queue, [0]), hosts.call

        def failing(name: str, partition: int, method: str, *args: object) -> object:
            if method == "rollBack":
                raise error
            return call(name, partition, method, *args)

        monkeypatch.setattr(hosts, "call", failing)
        if error.retryable:
            with pytest.raises(StorageUnavailable):
                run(hosts)
        else:
            run(hosts)
        assert is_invalid(client, pointer) is error.retryable
        monkeypatch.undo()
        run(hosts)
        assert not is_invalid(client, pointer)


def test_a_partition_that_nobody_owns_is_taken_so_that_it_is_trimmed(running: Engine, hosts: Hosts) -> None:
    with connect(running.address) as client:
        run(hosts)  # of what other tests have left
        client.create_queue("unowned", partitions=4, ttl_seconds=3600)
        client.create_queue("kept")
        client.queue("unowned").put(b"owned", partition=1)
        assert (run(hosts, dry_run=True).taken, run(hosts).taken, run(hosts).taken) == (3, 3, 0)
        assert all(one.host is not None for one in client.queue_info("unowned").partitions)
