"""What scanners and subscriptions get of a topic's partition, in transactions and outside."""

from __future__ import annotations

from contextlib import suppress

from delivery.api.reading import Reading
from delivery.api.rest.ledgers import Ledgers
from delivery.batch import headers_in, open_batch, without_asides
from delivery.cluster.partition import OwnedPartition
from delivery.dispatch.committed import CommittedSource
from delivery.dispatch.scanner import Source
from delivery.messaging.ledger import Ledger
from delivery.messaging.transactions import Snapshot, write_snapshot
from delivery.model import Message
from delivery.rpc.protocol import load_idl


class InProgressError(Exception):
    """A subscription waits for a transaction, which does not end here."""


class FixedView:
    """Transactions as they stood once (dispatch.committed.Transactions)."""

    trouble = ""

    def __init__(self, snapshot: Snapshot, owned: OwnedPartition) -> None:
        self._snapshot, self._owned, self._ledgers = snapshot, owned, Ledgers()

    async def view(self) -> Snapshot:
        return self._snapshot

    async def ended(self, pointer: int) -> None:
        raise InProgressError(pointer)

    async def ledger(self, partition: Source) -> Ledger:
        assert partition is self._owned
        return await self._ledgers.caught_up(self._owned)


async def pushed(
    owned: OwnedPartition, snapshot: Snapshot | None, bytes_max: int, after: int = 0
) -> list[Message]:  # fmt: skip
    """What the worker of a subscription reads behind an id, up to where it stops; with a snapshot what is committed."""
    source: Source = owned.source()
    if snapshot is not None:
        source = CommittedSource(source, owned, FixedView(snapshot, owned))
    found: list[Message] = []
    with suppress(InProgressError):
        while (chunk := await source.read(after, bytes_max)) is not None:
            assert chunk.last_id > after
            found += messages_of(without_asides(chunk.data, chunk.headers)[0], after)
            after = chunk.last_id
    return found


async def scanned(reading: Reading, queue: str, snapshot: Snapshot | None, bytes_max: int) -> list[bytes]:
    """What a scanner gets, one that asks for what is committed where there is a snapshot."""
    found, after = [], -1
    transaction = None if snapshot is None else write_snapshot(snapshot)
    request = load_idl("delivery").ReadRequest(
        queue=queue, partition=0, after=0, bytesMax=bytes_max, transaction=transaction
    )
    while request.after != after:
        after = request.after
        reply = await reading.read(request)
        found += [message.body for message in messages_of(reply.batches, after)]
        request.after = reply.position
    if transaction is not None:
        assert await reading.decided(queue, 0, 0, 0, transaction) == after
    return found


def messages_of(batches: bytes, after: int) -> list[Message]:
    """The messages of batches above an id, which rise."""
    found: list[Message] = []
    for at, header in headers_in(batches):
        found += open_batch(batches[at : at + header.length], header).messages("q", after)
    numbers = [one.number for one in found]
    assert numbers == sorted(set(numbers))
    return found
