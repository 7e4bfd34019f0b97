"""How the subscriber's process notes its callbacks: 32 bytes each, appended to a file per subscription.

    i64 message id | i64 time of the callback (CLOCK_MONOTONIC, ns) | u32 µs since the publisher's put |
    u32 bytes of the body | i16 partition | i16 departure delay, -32768 for none | 2 bytes carrier | 2 zero bytes

Each is written by its own system call before the callback returns, so that a kill -9 of the process takes none away
that the callback has made. Records of 32 bytes never cross a page of the file, so none is ever half there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_LAYOUT: Final = struct.Struct("<qqIIhh2s2x")
RECORD_BYTES: Final = _LAYOUT.size
_NO_DELAY: Final = -32768
_MICROSECONDS_MAX: Final = 2**32 - 1


class Received(NamedTuple):
    """One callback."""

    number: int
    """The message id; with the partition it names a message."""
    at_ns: int
    """When it was called; CLOCK_MONOTONIC, which all processes of a machine share."""
    waited_us: int
    """Since the publisher's `put` was entered."""
    size: int
    partition: int
    delay: int | None
    carrier: str


class RecordFile:
    """Appends records. Whoever opens it closes it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def append(self, record: Received) -> None:
        """Write one record through to the operating system."""
        number, at_ns, waited_us, size, partition, delay, carrier = record
        stored = _NO_DELAY if delay is None else delay
        waited = min(max(waited_us, 0), _MICROSECONDS_MAX)
        os.write(self._file, _LAYOUT.pack(number, at_ns, waited, size, partition, stored, carrier.encode()))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def count(path: Path) -> int:
    """Records in the file by now; 0 before it is there."""
    try:
        return path.stat().st_size // RECORD_BYTES
    except FileNotFoundError:
        return 0


def read(path: Path) -> Iterator[Received]:
    """All records in the order of the callbacks; none when the file is not there."""
    data = path.read_bytes() if path.exists() else b""
    for number, at_ns, waited, size, partition, delay, carrier in _LAYOUT.iter_unpack(data):
        known = None if delay == _NO_DELAY else delay
        yield Received(number, at_ns, waited, size, partition, known, carrier.decode())
