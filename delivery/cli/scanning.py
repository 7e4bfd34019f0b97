"""What `hoot scan` does: reads a queue from the outside and prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from delivery.cli.formats import Printer
from delivery.cli.options import Start

if TYPE_CHECKING:
    from delivery.client import Queue
    from delivery.client.scanners import CombinedPartitionScanner, QueueScanner

MESSAGES_AT_ONCE = 1_000
_FOLLOW_SECONDS = 1.0
"""How long a scan that follows waits at a time; Ctrl-C is noticed at once all the same."""


class Selection(NamedTuple):
    """Which messages."""

    partitions: tuple[int, ...] | None
    topics: tuple[str, ...] | None
    filter: str | None
    start: Start
    end: Start | None
    limit: int | None
    isolation: str = "uncommitted"

    def scanner(self, queue: Queue, *, follow: bool) -> QueueScanner | CombinedPartitionScanner:
        """A scanner over them; the caller closes it."""
        scope: dict[str, Any] = {"start": self.start, "stop": self.end, "topics": self.topics or (), "follow": follow}
        scope |= {"filter": self.filter, "isolation": self.isolation}
        if self.partitions is None:
            return queue.scanner(**scope)
        return queue.combined_scanner(self.partitions, **scope)


def scan_all(zookeeper: str, queue: str, selection: Selection, form: str, *, follow: bool) -> None:
    """Print the selection. With `follow` it ends only at its limit."""
    from delivery.client import connect

    printer = Printer(form)
    with connect(zookeeper) as client, selection.scanner(client.queue(queue), follow=follow) as scanner:
        while (wanted := _wanted(selection.limit, printer.count)) > 0:
            messages = scanner.next_batch(wanted, _FOLLOW_SECONDS if follow else None)
            if not messages and not follow:
                break
            for message in messages:
                printer.show(message)
            if follow:
                printer.flush()
        printer.flush()


def _wanted(limit: int | None, printed: int) -> int:
    return MESSAGES_AT_ONCE if limit is None else min(MESSAGES_AT_ONCE, limit - printed)
