"""Reading many znodes in one request: ZooKeeper's MultiRead, which kazoo has no call for. Since ZooKeeper 3.6.

A read of its own costs kazoo 0.4 ms of processor time, and its connection thread a turn; of sixty-four together each
costs 0.01 ms. The bytes are jute's: numbers big-endian, texts and values after their length, -1 for none.

    request   for each path:  header (operation, 0, -1), path, no watch;  at the end: header (-1, 1, -1)
    reply     for each path:  header (operation, 0, error), then what the operation answers;  the same end

An operation that failed has -1 in the place of the operation, and answers with the code of its error.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, Final

from delivery.metastore.znodes import Aspect

READ_AT_ONCE: Final = 64
"""Paths in a request. Nothing is known of what they hold, which may be 512 KiB each: the reply is built in memory."""

_HEADER: Final = struct.Struct("!i?i")
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_VERSION_AT: Final = 4
_OPERATIONS: Final[dict[Aspect, int]] = {"value": 4, "children": 8}
_FAILED: Final = -1
_END: Final = _HEADER.pack(-1, True, -1)

Answer = tuple[bytes, int] | list[str] | int
"""A value and its version, or the names of children, or the code of the error."""


class ReadMany:
    """The request, as kazoo knows one."""

    type: ClassVar[int] = 22

    def __init__(self, aspect: Aspect, paths: Sequence[str]) -> None:
        self._header = _HEADER.pack(_OPERATIONS[aspect], False, -1)
        self._paths = paths

    def serialize(self) -> bytes:
        """What is sent."""
        encoded = [path.encode() for path in self._paths]
        return b"".join(self._header + _INT.pack(len(path)) + path + b"\0" for path in encoded) + _END

    @staticmethod
    def deserialize(data: bytes, at: int) -> list[Answer]:
        """Per path its answer, from the reply's bytes behind `at`."""
        answers: list[Answer] = []
        while True:
            operation, ended, _ = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            if ended:
                return answers
            if operation == _FAILED:
                answer: Answer = _INT.unpack_from(data, at)[0]
                at += _INT.size
            elif operation == _OPERATIONS["value"]:
                value, at = _buffer(data, at)
                answer = (value, _STAT.unpack_from(data, at)[_VERSION_AT])
                at += _STAT.size
            else:
                answer, at = _names(data, at)
            answers.append(answer)


def _buffer(data: bytes, at: int) -> tuple[bytes, int]:
    length = _INT.unpack_from(data, at)[0]
    at += _INT.size
    end = at + max(0, length)
    return data[at:end], end


def _names(data: bytes, at: int) -> tuple[list[str], int]:
    count = _INT.unpack_from(data, at)[0]
    at += _INT.size
    names = []
    for _ in range(count):
        name, at = _buffer(data, at)
        names.append(name.decode())
    return names, at
