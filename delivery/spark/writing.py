"""What an executor does with the rows of a task: cuts them into batches and has these stored by their owners."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import Final, Self

import msgspec
import pyarrow as pa

from delivery.errors import AnsweredLongAgo, HootError, SequenceReused
from delivery.spark.cutting import Cut, Cutter, Origin
from delivery.spark.pacing import paced
from delivery.spark.planning import PATIENCE_SECONDS, Engine, engine

BATCHES_MAX: Final = 8
BYTES_MAX: Final = 16 * 1024 * 1024
"""What a task has under way, at most: so many batches and bytes, or one batch."""


class RowsDiffer(HootError):
    """A task that ran again has other rows than before, of which some are stored and some would be lost."""

    code = "rows_differ"


class Outlets:
    """Batches on their way: to each partition one at a time, to several at once.

    So a batch never overtakes the one before it, whatever has to be sent again.
    """

    def __init__(self, send: Callable[[Cut], None]) -> None:
        """`send` blocks until the batch is stored, and is called in threads."""
        self._send = send
        self._threads = ThreadPoolExecutor(BATCHES_MAX, "hoot-write")
        self._under_way: dict[Future[None], Cut] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error nobody waits for what is being tried again: it ends when the connections are closed.
        self._threads.shutdown(wait=kind is None, cancel_futures=True)

    def put(self, cut: Cut) -> None:
        """Send a batch when there is room. Raises what became of an earlier one."""
        while not fits(cut, self._under_way.values()):
            self._settle()
        self._under_way[self._threads.submit(self._send, cut)] = cut

    def finish(self) -> None:
        """Wait for all of them. Raises what became of one that is not stored."""
        while self._under_way:
            self._settle()

    def _settle(self) -> None:
        for one in wait(self._under_way, return_when=FIRST_COMPLETED).done:
            del self._under_way[one]
            one.result()


def fits(cut: Cut, others: Collection[Cut]) -> bool:
    """Whether a batch may be sent beside those others."""
    if any((other.queue, other.partition) == (cut.queue, cut.partition) for other in others):
        return False
    size = len(cut.data) + sum(len(other.data) for other in others)
    return not others or (len(others) < BATCHES_MAX and size <= BYTES_MAX)


def write_task(zookeeper: str, queue: str, origin: Origin, rows: Iterable[pa.RecordBatch]) -> None:
    """Store the rows of a task; they are stored when this returns.

    Raises what `Cutter.add` raises, what an owner refuses with, and after two minutes what kept a batch from being
    stored. What was stored before that stays.
    """
    some = (batch for batch in rows if len(batch))
    first = next(some, None)
    if first is None:
        return
    with engine(zookeeper, PATIENCE_SECONDS) as hosts, Outlets(lambda cut: store(hosts, cut)) as outlets:
        cutter = Cutter(origin, queue, hosts.queue)
        _put_all(cutter, chain([first], some), outlets)


def _put_all(cutter: Cutter, rows: Iterable[pa.RecordBatch], outlets: Outlets) -> None:
    for batch in rows:
        for cut in cutter.add(batch):
            outlets.put(cut)
    for cut in cutter.finish():
        outlets.put(cut)
    outlets.finish()


def write_paced(zookeeper: str, queue: str, origin: Origin, rows: Iterable[pa.RecordBatch], rate: float) -> None:
    """As `write_task`, but at most `rate` rows a second. Each piece is stored before the next one is sent."""
    with engine(zookeeper, PATIENCE_SECONDS) as hosts:
        began = time.monotonic()
        for piece in paced(rows, rate):
            time.sleep(max(0.0, began + piece.due - time.monotonic()))
            part = msgspec.structs.replace(origin, round=piece.number)
            # Which rows are a piece is a matter of their order: a batch of others is never these in another order.
            cutter = Cutter(part, queue, hosts.queue, alone=False)
            with Outlets(lambda cut: store(hosts, cut)) as outlets:
                _put_all(cutter, piece.rows, outlets)


def store(hosts: Engine, cut: Cut) -> None:
    """Have a batch stored, if it is not stored yet."""
    try:
        hosts.publish(cut.queue, cut.partition, cut.data)
    except AnsweredLongAgo:
        return  # by the run before this one, or by the round after it, which Spark begins when this one is done
    except SequenceReused as error:
        if cut.whole:
            return  # the same rows are stored in another order
        raise RowsDiffer(
            f"an earlier run of this task stored other rows in {cut.queue.name}/{cut.partition} at this place: its rows"
            f" must be the same, in the same order, each time that it runs ({error.message})"
        ) from error
