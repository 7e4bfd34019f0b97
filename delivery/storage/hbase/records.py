"""What stands in the row of a partition, as JSON so that a person can read it in the shell of HBase.

`batch:owner` is the fence: the newest epoch that opened the partition. It is moved by checkAndPut alone and looked at
after every write. `batch:checkpoint` is put by the owner whose cell it is, by a checkAndPut that looks at
`batch:owner`: so nobody changes it who was fenced, and an answer that was lost cannot undo what a later owner wrote.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from delivery.errors import CorruptRecord, LayoutMismatch
from delivery.model import Layout, lay_out
from delivery.storage.base import StoredBatch
from delivery.storage.hbase.held import Held, Life, Mark
from delivery.storage.producers import Producers
from delivery.storage.sealed import EpochIds

VERSION: Final = 1


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may write to the partition."""

    version: int
    layout: Layout
    """How its messages are laid out, chosen when it was opened for the first time."""
    epoch: int
    store: str
    """Which store of which process, so that one whose answer was lost knows its own cell again."""


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was found and sealed when the partition was opened, or known some time later."""

    epoch: int
    """The batches that follow are this epoch's; those of any other count for nothing."""
    held: Held
    producers: tuple[tuple[int, int, int, int], ...]
    """Producer id, sequence, base id and count of each batch that is remembered (see delivery/storage/producers.py)."""

    def memory(self) -> Producers:
        """The producers' batches to go on with."""
        return Producers(StoredBatch(*fields) for fields in self.producers)


lay_out(Owner, Checkpoint, Held, Mark, Life, EpochIds)

_Record = TypeVar("_Record", Owner, Checkpoint)


def checkpoint(epoch: int, held: Held, producers: Producers) -> Checkpoint:
    """The checkpoint of an owner."""
    stored = tuple((one.producer_id, one.sequence, one.base_id, one.count) for one in producers.snapshot())
    return Checkpoint(epoch, held, stored)


def encode(record: Owner | Checkpoint) -> bytes:
    """The cell."""
    return msgspec.json.encode(record)


def decode_owner(cell: bytes) -> Owner:
    """Raises LayoutMismatch for another version, CorruptRecord."""
    try:
        version = msgspec.json.decode(cell).get("version")
    except (msgspec.DecodeError, AttributeError):
        version = VERSION
    if version != VERSION:
        raise LayoutMismatch(f"the partition has layout version {version!r}; this version of Hoot reads {VERSION}")
    return _decode(cell, Owner)


def decode_checkpoint(cell: bytes) -> Checkpoint:
    """Raises CorruptRecord."""
    return _decode(cell, Checkpoint)


def _decode(cell: bytes, kind: type[_Record]) -> _Record:
    try:
        return msgspec.json.decode(cell, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptRecord(f"the {kind.__name__.lower()} of a partition does not parse: {error}") from error
