"""What a process of a chaos run did, written down where a kill -9 cannot reach it: a line per event, appended at once.

A line is fields with a blank between them; the first says what happened, the second when, in microseconds of the
machine's monotonic clock, which all processes share.

Publisher    `begin T`, `try T N TOPIC CRC` (before the put), then one of `stored T N PARTITION ID`, `refused T N CODE`
             and `unknown T N CODE`; `end T` when all outcomes are known. N counts the puts of one incarnation.
Subscriber   `begin T`, `attached T`, `call T PARTITION ID TOPIC BODY CRC` (in the callback), `end T`; the one
             that comes and goes `churned T`, each time; `moved T PARTITION FORMER-EPOCH EPOCH`.
Tail         `read T PARTITION ID TOPIC BODY CRC`: a scanner that follows the queue.
Watcher      `checkpoint T SUBSCRIPTION PARTITION ID EPOCH`, `owner T PARTITION EPOCH HOST`: what ZooKeeper said.
Gauges       `gauge T PROCESS WHAT VALUE`: memory and handles of a process, and what a host says of its queues.
Intruder     `attempt T KIND DUE OUTCOME`: something that must be refused, and how it was.
Nemesis      `fault T NAME TARGET PARTITION,…` (those that the target owned), `healed T NAME TARGET`, `ended T NAME
             STATUS` of a process that ended by itself.

An empty topic is `-`. BODY is the name that a body begins with (see `body_of`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from hashlib import shake_128
from pathlib import Path
from zlib import crc32

from delivery.model import Message


def now_us() -> int:
    """Microseconds of the monotonic clock of this machine."""
    return time.monotonic_ns() // 1000


class History:
    """Appends to a file; thread-safe, as each line is one write."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note(self, what: str, *fields: object, at: int | None = None) -> None:
        """Write one event down."""
        words = (what, now_us() if at is None else at, *fields)
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def events(path: Path) -> Iterator[list[str]]:
    """The fields of each line; a last one that was cut short is left out."""
    if not path.exists():
        return
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield line.split()


def body_of(name: str, size: int) -> bytes:
    """A body that nobody else has: its name, a blank, and `size` bytes that follow from the name."""
    return name.encode() + b" " + shake_128(name.encode()).digest(size)


def fields(message: Message) -> tuple[int, int, str, str, int]:
    """PARTITION ID TOPIC BODY CRC of a message."""
    return message.partition, message.number, message.topic or "-", *seen(message.body)


def seen(body: bytes) -> tuple[str, int]:
    """The name and the checksum of a body, whatever is in it."""
    name = body.partition(b" ")[0][:60].decode("ascii", errors="replace")
    return "".join(name.split()) or "?", crc32(body)
