"""Messages on their way out: checked against every limit before anything is sent, and made into rows of a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, cast

import msgspec

from delivery.batch import Row
from delivery.client.accumulator import ROW_BYTES
from delivery.errors import MessageTooLarge
from delivery.model import KEY_BYTES_MAX, check_partition, check_topic, encode_headers
from delivery.telemetry import configured

TOPICS_KEPT: Final = 10_000
"""Topic names remembered as checked, per publisher."""

Bytes = bytes | bytearray | memoryview


class NewMessage(msgspec.Struct, frozen=True):
    """A message to publish with `put_many`; the fields are the arguments of `Queue.put`."""

    body: Bytes
    key: Bytes | None = None
    topic: str = ""
    headers: Mapping[str, bytes] | None = None
    partition: int | None = None


class Plain:
    """Messages without a key, a topic or headers, all checked, which may go to any partition."""

    __slots__ = ("_ends", "bodies")

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self.bodies = bodies
        self._ends = list(accumulate(map(ROW_BYTES.__add__, map(len, bodies)), initial=0))
        """How many bytes those before each place count for."""

    def size(self, at: int, end: int) -> int:
        """How many bytes those from `at` to before `end` count for."""
        return self._ends[end] - self._ends[at]

    def fitting(self, at: int, room: int) -> int:
        """The last place up to which those from `at` on fit into so many bytes."""
        return bisect_right(self._ends, self._ends[at] + room, at) - 1


class Outgoing:
    """The checks of one queue's messages. Thread-safe: what it remembers only saves work."""

    __slots__ = ("_body_bytes_max", "_partitions", "_queue", "_refresh", "carry", "settled", "topics")

    def __init__(self, queue: str, partitions: int, body_bytes_max: int, refresh: Callable[[], int]) -> None:
        """`refresh` gives the queue's limit of a body as it is now; asked before a body is refused."""
        self._queue, self._partitions = queue, partitions
        self._body_bytes_max, self._refresh = body_bytes_max, refresh
        telemetry = configured()
        self.carry = None if telemetry is None else telemetry.carry
        """What each message's headers go through, if anything."""
        self.settled = None if telemetry is None else telemetry.published(queue)
        """To be told of each batch that has an outcome, if anybody is."""
        self.topics = {""}
        """Topics that were checked."""

    @property
    def body_bytes_max(self) -> int:
        """The limit as known now; it may have been raised since."""
        return self._body_bytes_max

    def row(
        self, body: Bytes, key: Bytes | None, topic: str, headers: Mapping[str, bytes] | None
    ) -> tuple[Row, int]:  # fmt: skip
        """The row of a message and how many bytes it counts for.

        Raises TypeError for what is not bytes, MessageTooLarge and InvalidRequest for what is over a limit.
        """
        raw = _raw("a message's body", body)
        if len(raw) > self._body_bytes_max:
            self._body_bytes_max = self._refresh()
            if len(raw) > self._body_bytes_max:
                raise MessageTooLarge(f"a body of {len(raw)} bytes; this queue takes up to {self._body_bytes_max}")
        key = None if key is None else _raw("a message's key", key)
        if key is not None and len(key) > KEY_BYTES_MAX:
            raise MessageTooLarge(f"a key of {len(key)} bytes; the limit is {KEY_BYTES_MAX}")
        if topic not in self.topics:
            check_topic(topic)
            if len(self.topics) >= TOPICS_KEPT:
                self.topics.clear()
            self.topics.add(topic)
        if self.carry is not None:
            headers = self.carry(headers)
        block = encode_headers(headers) if headers else b""
        return (raw, key, topic, block), len(raw) + len(key or b"") + len(topic) + len(block) + ROW_BYTES

    def plain(self, messages: Sequence[Bytes | NewMessage]) -> Plain | None:
        """The messages, when each is a body of bytes within the limit as known now: then no more is to check."""
        if self.carry is not None or set(map(type, messages)) != {bytes}:
            return None
        bodies = cast("Sequence[bytes]", messages)
        return Plain(bodies) if max(map(len, bodies)) <= self._body_bytes_max else None

    def row_of(self, message: Bytes | NewMessage) -> tuple[Row, int, int | None]:
        """As `row`, with the partition, of one element given to `put_many`."""
        if isinstance(message, NewMessage):
            if message.partition is not None:
                check_partition(message.partition, self._partitions, self._queue)
            return (*self.row(message.body, message.key, message.topic, message.headers), message.partition)
        return (*self.row(message, None, "", None), None)


def _raw(what: str, value: object) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    hint = ": encode it first, as in text.encode()" if isinstance(value, str) else ""
    raise TypeError(f"{what} is bytes, not {type(value).__name__}{hint}")
