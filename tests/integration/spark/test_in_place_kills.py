"""A compaction in place that is killed between any two of its steps is gone on with, and loses nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from delivery import Client, connect
from delivery.client.copying import QueueCopy
from delivery.client.moving import SubscriptionCopies
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.queues import QueueManager
from delivery.spark.jobs.renewing import Renewal, compact_in_place
from tests.integration.embedded import ROOT, eventually
from tests.integration.engine import Engine
from tests.integration.spark.compacted import SECONDS, check, fill, goes_on, messages, newest, said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


class BrokeOff(Exception):
    """As if the process had been killed."""


@contextmanager
def breaking(kind: Any, name: str, after: int = 0, *, done: bool = False) -> Iterator[None]:
    """Calls of a method break off, behind so many that do not; with `done` when they have done their work."""
    real, calls = getattr(kind, name), 0

    def call(*args: Any, **given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= after:
            return real(*args, **given)
        if done:
            real(*args, **given)
        raise BrokeOff(name)

    with mock.patch.object(kind, name, call):
        yield


MOMENTS: dict[str, Callable[[], Any]] = {
    "the copy is made": lambda: breaking(Renewal, "_chosen"),
    "what is kept is there": lambda: breaking(QueueCopy, "switch"),
    "the queue is closed": lambda: breaking(SubscriptionCopies, "bring"),
    "the subscriptions are there": lambda: breaking(SubscriptionCopies, "bring", done=True),
    "the copy is whole": lambda: breaking(Catalog, "replace_queue"),
    "what belonged to the queue is gone": lambda: breaking(Catalog, "_delete_belongings", done=True),
    "the queue is replaced": lambda: breaking(Catalog, "replace_queue", done=True),
    "the messages are back": lambda: breaking(SubscriptionCopies, "bring", 1),
    "all is back": lambda: breaking(SubscriptionCopies, "bring", 1, done=True),
    "the queue is open": lambda: breaking(QueueCopy, "switch", 1, done=True),
    "the copy is to go": lambda: breaking(QueueManager, "delete_queue"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_was_broken_off_is_gone_on_with_and_loses_nothing(
    running: Engine, spark: SparkSession, moment: str
) -> None:  # fmt: skip
    queue = f"states-{list(MOMENTS).index(moment)}"
    with connect(running.address) as client:
        fill(client, queue)
        before, generation = messages(client, queue), client.queue_record(queue).generation
        with MOMENTS[moment](), pytest.raises(BrokeOff):
            compact_in_place(spark, running.address, queue)
        everywhere = said([
            one for name in client.queues() if name in {queue, f"{queue}.compacting"} for one in messages(client, name)
        ])  # fmt: skip
        assert everywhere >= said(newest(before)), "at each moment all is somewhere"
        late = untouched(client, queue)
        if late:  # what the copy holds of k5 is not to come back
            client.queue(queue).put(b"", key=b"k5")
            before = messages(client, queue)
        compact_in_place(spark, running.address, queue)
        check(client, queue, before)
        assert client.queue_record(queue).generation != generation
        goes_on(client, running.address, queue, *[b""] * late)


def untouched(client: Client, queue: str) -> bool:
    record = client.queue_record(queue)
    return not (record.copy_of or record.settings.closed)


def test_a_driver_that_is_killed_at_any_moment_loses_nothing(running: Engine, spark: SparkSession) -> None:
    queue, copy = "killed", "killed.compacting"
    command = ["-m", "delivery.cli", "spark", "compact", queue, "--in-place", "--yes", "--master", "local[1]"]
    given = {**os.environ, "HOOT_ZOOKEEPER": running.address, "PYTHONPATH": str(ROOT)}
    with connect(running.address) as client:
        fill(client, queue)
        before = messages(client, queue)
        moments: list[Callable[[], bool]] = [
            lambda: copy in client.queues(),
            lambda: client.queue_record(queue).settings.closed,
            lambda: bool(client.queue_record(queue).copy_of),
        ]
        for come in moments:
            child = subprocess.Popen([sys.executable, *command], env=given, stdin=subprocess.DEVNULL)
            try:
                eventually(lambda: come() or child.poll() is not None, "the moment comes", SECONDS)  # noqa: B023
            finally:
                child.kill()
                child.wait()
            everywhere = [one for name in (queue, copy) if name in client.queues() for one in messages(client, name)]
            assert said(everywhere) >= said(newest(before))
        compact_in_place(spark, running.address, queue)
        check(client, queue, before)
        goes_on(client, running.address, queue)
