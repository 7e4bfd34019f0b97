"""Messages as structs of the plain faces: idl/delivery.thrift calls it Message, idl/subscriber.thrift PlainMessage."""

from __future__ import annotations

from typing import Any, Final

from delivery.model import Message, tolerant_headers

_FIXED_BYTES: Final = 64
"""What a struct takes beside the message's parts: heads of fields, lengths, numbers."""


def plain_struct(kind: Any, message: Message) -> Any:
    """`message` as a struct of the class `kind`.

    A publisher that wrote nonsense in place of headers loses them, because the messages behind must still be reached.
    """
    return kind(
        id=message.number, partition=message.partition, topic=message.topic, key=message.key,
        headers=tolerant_headers(message.header_block), body=message.body,
    )  # fmt: skip


def plain_bytes(message: Message) -> int:
    """About as many bytes as the struct takes in a frame."""
    return _FIXED_BYTES + len(message.topic) + len(message.key or b"") + len(message.header_block) + len(message.body)
