"""A transaction as its client sees it, and what that means for a message of another one.

The bytes are Thrift's binary protocol, the struct TTransaction of Tephra 0.15 (a client sends what its transaction
service gave it):

    1 i64 transactionId            5 i64 firstShort (not looked at)
    2 i64 readPointer              6 i32 type: 1 short, 2 long (not looked at)
    3 list<i64> invalids           7 i64 writePointer
    4 list<i64> inProgress         8 list<i64> checkpointWritePointers
                                   9 i32 visibilityLevel: 1 all of one's own, 2 but the current pointer, 3 as 1

Unknown fields are passed over. The lists are sorted.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from delivery.errors import InvalidRequest

_STOP, _BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64, _STRING, _LIST, _SET = 0, 2, 3, 4, 6, 8, 10, 11, 15, 14
_FIXED: Final = {_BOOL: 1, _BYTE: 1, _DOUBLE: 8, _I16: 2, _I32: 4, _I64: 8}
_LISTS: Final = {3: "invalid", 4: "in_progress", 8: "checkpoints"}
_NUMBERS: Final = {1: "transaction", 2: "read_pointer", 7: "write_pointer"}
_VISIBILITY: Final = 9
EXCLUDE_CURRENT: Final = 2
_SHORT: Final = 1
_NONE_IN_PROGRESS: Final = 2**63 - 1


class Verdict(Enum):
    """What a reader does with a message."""

    TAKE = "take"
    SKIP = "skip"
    STOP = "stop"
    """And with everything behind it, for now."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All transactions as of the beginning of one."""

    transaction: int
    read_pointer: int
    write_pointer: int
    invalid: Sequence[int] = ()
    in_progress: Sequence[int] = ()
    checkpoints: Sequence[int] = ()
    visibility: int = 1

    def judge(self, pointer: int, *, rolled_back: bool) -> Verdict:
        """The verdict on a message that was published under the write pointer `pointer`."""
        if rolled_back:
            return Verdict.SKIP
        if self._is_own(pointer):
            return Verdict.TAKE
        if within(self.invalid, pointer):
            return Verdict.SKIP
        committed = pointer <= self.read_pointer and not within(self.in_progress, pointer)
        return Verdict.TAKE if committed else Verdict.STOP

    def _is_own(self, pointer: int) -> bool:
        if pointer == self.write_pointer and self.visibility == EXCLUDE_CURRENT:
            return False
        return pointer in (self.transaction, self.write_pointer) or pointer in self.checkpoints


def read_snapshot(data: bytes) -> Snapshot:
    """The transaction that a client sent. Raises InvalidRequest for bytes that are none."""
    try:
        return msgspec.convert(_fields(data), Snapshot)
    except (struct.error, IndexError, msgspec.ValidationError) as error:
        raise InvalidRequest("the transaction is no TTransaction in Thrift's binary protocol") from error


def write_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of a transaction, as Tephra would have written them."""
    first = min(snapshot.in_progress, default=_NONE_IN_PROGRESS)
    numbers = struct.Struct(">bhq")
    return b"".join(
        (
            numbers.pack(_I64, 1, snapshot.transaction), numbers.pack(_I64, 2, snapshot.read_pointer),
            _listed(3, snapshot.invalid), _listed(4, snapshot.in_progress), numbers.pack(_I64, 5, first),
            struct.pack(">bhi", _I32, 6, _SHORT), numbers.pack(_I64, 7, snapshot.write_pointer),
            _listed(8, snapshot.checkpoints), struct.pack(">bhi", _I32, _VISIBILITY, snapshot.visibility), b"\0",
        )
    )  # fmt: skip


def _listed(field: int, numbers: Sequence[int]) -> bytes:
    return struct.pack(f">bhbi{len(numbers)}q", _LIST, field, _I64, len(numbers), *numbers)


def _fields(data: bytes) -> dict[str, object]:
    found: dict[str, object] = {}
    at = 0
    while (kind := data[at]) != _STOP:
        (number,) = struct.unpack_from(">h", data, at + 1)
        at += 3
        if number in _LISTS and kind == _LIST:
            found[_LISTS[number]], at = _list(data, at)
        elif number in _NUMBERS and kind == _I64:
            (found[_NUMBERS[number]],) = struct.unpack_from(">q", data, at)
            at += 8
        elif number == _VISIBILITY and kind == _I32:
            (found["visibility"],) = struct.unpack_from(">i", data, at)
            at += 4
        else:
            at = _passed_over(data, kind, at)
    if isinstance(found.get("transaction"), int):
        found.setdefault("write_pointer", found["transaction"])
    return found


def _list(data: bytes, at: int) -> tuple[list[int], int]:
    kind, count = struct.unpack_from(">bi", data, at)
    if kind != _I64 or not 0 <= count <= (len(data) - at) // 8:
        raise InvalidRequest("a list in the transaction is longer than the transaction, or not one of numbers")
    return sorted(struct.unpack_from(f">{count}q", data, at + 5)), at + 5 + 8 * count


def _passed_over(data: bytes, kind: int, at: int) -> int:
    """The place behind a field that means nothing here. Structs and maps are in no transaction."""
    width = size = 0
    if kind in _FIXED:
        width, size = _FIXED[kind], 1
    elif kind == _STRING:
        (size,) = struct.unpack_from(">i", data, at)
        width, at = 1, at + 4
    elif kind in (_LIST, _SET):
        of, size = struct.unpack_from(">bi", data, at)
        width, at = _FIXED.get(of, 0), at + 5
    if width == 0 or not 0 <= size * width <= len(data) - at:
        raise InvalidRequest(f"the transaction has a field of type {kind} that cannot be")
    return int(at + size * width)


def within(numbers: Sequence[int], wanted: int) -> bool:
    """Whether a number is among sorted ones."""
    place = bisect_left(numbers, wanted)
    return place < len(numbers) and numbers[place] == wanted
