"""Packed reads of a region host, for tests."""

from __future__ import annotations

from typing import Any

from delivery.batch import headers_in, open_batch
from delivery.model import Message
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.protocol import load_idl

IDL: Any = load_idl("delivery")


def request(
    after: int = 0, *, partition: int = 0, until: int = 0, wait_ms: int = 0, topics: tuple[str, ...] = ()
) -> Any:
    return IDL.ReadRequest(
        queue="orders", partition=partition, after=after, upTo=until, topics=list(topics), bytesMax=1 << 20,
        waitMs=wait_ms,
    )  # fmt: skip


def messages_of(reply: Any) -> list[Message]:
    data = bytes(reply.batches)
    return [m for at, header in headers_in(data) for m in open_batch(data[at : at + header.length]).messages("orders")]


def everything(connection: BlockingConnection) -> list[bytes]:
    """The bodies in partition 0, read to its end."""
    found: list[bytes] = []
    after = -1
    reply = connection.call("read", request())
    while reply.position > after:
        found += [m.body for m in messages_of(reply)]
        after = reply.position
        reply = connection.call("read", request(after))
    return found
