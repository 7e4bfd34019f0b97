"""What `hoot publish` does: reads bodies, publishes them in batches, and says what was stored."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from delivery.cli.output import number, show_json, size, span, tell
from delivery.cli.sources import Source
from delivery.errors import HootError

if TYPE_CHECKING:
    from delivery.client import Queue
    from delivery.client.publisher import PublishedMessage, Publisher, Receipt

RECEIPTS_MAX = 50_000
"""Messages published and not yet confirmed that are kept track of; above it reading waits."""
_PROGRESS_EVERY = 1_000
_SECONDS = 30.0


class Load(NamedTuple):
    """What to publish."""

    source: Source
    repeat: int
    ids: bool | None
    """Whether to print them; None: those of arguments, as nobody reads those of a stream."""
    seconds: float | None
    """That a message may take to be stored; None for the usual ones."""

    @property
    def keep_ids(self) -> bool:
        """Whether they are to be printed."""
        return not self.source.is_stream if self.ids is None else self.ids

    @property
    def timeout(self) -> float:
        """How long a message may take."""
        return _SECONDS if self.seconds is None else self.seconds


class Route(NamedTuple):
    """What the messages have in common."""

    key: str | None
    topic: str
    headers: dict[str, bytes]
    partition: int | None

    def put(self, publisher: Publisher, body: bytes) -> Receipt:
        """Publish one body with it."""
        key = None if self.key is None else self.key.encode(errors="surrogateescape")
        return publisher.put(body, key=key, topic=self.topic, headers=self.headers or None, partition=self.partition)


class Tally:
    """What was confirmed so far."""

    def __init__(self, *, keep_ids: bool) -> None:
        self.messages = 0
        self.bytes = 0
        self.durability: str | None = None
        self.ids: list[tuple[int, str]] | None = [] if keep_ids else None

    def add(self, published: PublishedMessage, length: int) -> None:
        """Count a stored message."""
        self.messages += 1
        self.bytes += length
        self.durability = published.durability
        if self.ids is not None:
            self.ids.append((published.partition, str(published.id)))


def publish_all(zookeeper: str, queue: str, load: Load, route: Route, *, as_json: bool) -> None:
    """Publish everything and print the outcome. Raises the first error, with how much was stored before it."""
    from delivery.client import connect

    tally = Tally(keep_ids=load.keep_ids)
    begun = time.monotonic()
    try:
        with connect(zookeeper) as client:
            _publish(client.queue(queue), load, route, tally)
    except HootError as error:
        if not tally.messages:
            raise
        stored = f"{number(tally.messages)} messages before it were stored"
        raise type(error)(f"{error.message} ({stored})", address=error.address) from error
    _show(queue, tally, time.monotonic() - begun, as_json=as_json)


def _publish(queue: Queue, load: Load, route: Route, tally: Tally) -> None:
    if load.source.is_standard_input and sys.stdin.isatty():
        tell("each line is a message; Ctrl-D ends")
    waiting: deque[tuple[Receipt, int]] = deque()

    def confirm(until: int) -> None:
        while len(waiting) > until:
            receipt, length = waiting.popleft()
            tally.add(receipt.result(), length)

    def put_all(publisher: Publisher, advance: Callable[[int], None]) -> None:
        for body in load.source.bodies():
            for _ in range(load.repeat):
                waiting.append((route.put(publisher, body), len(body)))
                if len(waiting) >= RECEIPTS_MAX:
                    confirm(RECEIPTS_MAX // 2)
            advance(load.repeat)

    with _progress(load.source) as advance, queue.publisher(timeout=load.timeout) as publisher:
        try:
            put_all(publisher, advance)
        except (HootError, OSError):
            with contextlib.suppress(HootError):  # the first error is the one to tell of, with what was stored
                confirm(0)
            raise
        confirm(0)


@contextlib.contextmanager
def _progress(source: Source) -> Iterator[Callable[[int], None]]:
    """Shows on a terminal how many messages were read; a function that counts them."""
    if not source.is_stream or not sys.stderr.isatty() or (sys.stdin.isatty() and source.is_standard_input):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} messages"), TimeElapsedColumn())
    seen = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("publish", total=None)

        def advance(count: int) -> None:
            nonlocal seen
            seen += count
            if seen % _PROGRESS_EVERY < count:
                progress.update(task, completed=seen)

        yield advance


def _show(queue: str, tally: Tally, seconds: float, *, as_json: bool) -> None:
    if as_json:
        ids = None if tally.ids is None else [{"partition": partition, "id": id} for partition, id in tally.ids]
        show_json({
            "queue": queue, "messages": tally.messages, "bytes": tally.bytes, "seconds": round(seconds, 3),
            "durability": tally.durability, "ids": ids,
        })  # fmt: skip
    elif tally.ids is not None:
        for _, id in tally.ids:
            print(id)
    else:
        durability = f", durability {tally.durability}" if tally.durability else ""
        print(f"{number(tally.messages)} messages, {size(tally.bytes)}, in {span(seconds)}{durability}")
