"""Looking for the dead letters of one message among all that a subscription has, which may be very many.

The owner of their queue sorts out what is of other messages, so only those wanted travel. A message is given up after
it was stored: the search begins at its time. It ends after some seconds, wherever it is then, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple

from delivery.batch import headers_in, open_batch
from delivery.client.calls import Calls
from delivery.client.deadletters import SETTLED, Gathering, StoredLetter
from delivery.dispatch.deadletters import PREFIX
from delivery.errors import InvalidRequest, UnknownQueue
from delivery.filters import parse_rule, rule_json
from delivery.ids import MessageId, first_id_at
from delivery.metastore.catalog import Catalog
from delivery.metastore.policy import dead_letter_queue
from delivery.rpc.protocol import load_idl

SEARCH_SECONDS: Final = 10.0
"""A host goes through some 100,000 dead letters a second."""
CLOCKS_MS: Final = 3_600_000
"""How far behind the clock of the host that has a dead letter may have been at most."""
READ_BYTES: Final = 1024 * 1024


class Burials(NamedTuple):
    """What was found."""

    letters: tuple[StoredLetter, ...]
    """Those of the message, oldest first, without what was dropped or sent back."""
    until: MessageId | None
    """Up to which dead letter was looked, and all that is said holds; None where that were all."""


class Search:
    """Over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, calls: Calls) -> None:
        self._catalog, self._calls = catalog, calls

    def find(self, queue: str, subscription: str, number: int) -> Burials:
        """The dead letters of the messages with this id, one in each partition that has such a one."""
        end = monotonic() + SEARCH_SECONDS
        found = Gathering(queue, str(MessageId(number)))
        until = None
        for name, partition in self._places(queue, subscription):
            until = self._through(name, partition, MessageId(number), found, end)
            if until is not None:
                break
        return Burials(tuple(found.left()), until)

    def _places(self, queue: str, subscription: str) -> Sequence[tuple[str, int]]:
        """The partitions of the queue of dead letters."""
        try:
            name = dead_letter_queue(queue, subscription)
            partitions = self._catalog.queue(name).settings.partitions
        except (InvalidRequest, UnknownQueue):  # the names leave none for them; or there were none yet
            return []
        return [(name, partition) for partition in range(partitions)]

    def _through(self, name: str, partition: int, message: MessageId, found: Gathering, end: float) -> MessageId | None:
        """Gather from one partition: None at its end, else how far that went."""
        after, last = max(0, first_id_at(message.timestamp_ms - CLOCKS_MS) - 1), False
        wanted = _wanted(message)
        while not last:
            request = load_idl("delivery").ReadRequest(
                queue=name, partition=partition, after=after, upTo=0, topics=[], bytesMax=READ_BYTES, waitMs=0,
                filter=wanted,
            )  # fmt: skip
            reply = self._calls.call(name, partition, "read", request)
            for at, header in headers_in(reply.batches):
                for one in open_batch(reply.batches[at : at + header.length], header).messages(name, after):
                    found.note(one)
            last = reply.position <= after or reply.position >= reply.watermark
            after = max(after, reply.position)
            if not last and monotonic() >= end:
                return MessageId(after)
        return None


def _wanted(message: MessageId) -> str:
    """The rule for what is of the message, and for what was settled."""
    settled = [{"exact": {f"header.{SETTLED}": how}} for how in ("dropped", "redriven")]
    return rule_json(parse_rule({"any": [{"exact": {f"header.{PREFIX}id": str(message)}}, *settled]}))
