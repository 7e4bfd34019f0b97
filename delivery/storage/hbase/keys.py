"""Names and row keys in HBase. All numbers in a row key are big-endian, so that the order of rows is that of ids.

    table   PREFIX.GENERATION.QUEUE     neither prefix nor generation has a point in it, so the name can be taken apart;
                                        a prefix NAMESPACE:NAME puts the tables into that namespace of HBase

    row of the table       ff ff, which no partition has
    row of a partition     partition u16
    row of a message       partition u16, milliseconds u64, sequence u16, epoch u64

A message's id is the ten bytes in the middle (seed 004, section 3.2). The epoch behind it keeps two owners apart that
write the same id: neither overwrites the other's row, and a reader tells by the epoch which one counts.

    batch:table                      in the row of the table, by which it is known again (see `making`)
    batch:owner, batch:checkpoint    in the row of a partition (see `records`)
    batch:head, batch:topics         in the row of a batch's first message (see `heads`, `topics`)
    message:TOPIC                    the body of a message; `message:` for no topic
    message::key, message::headers   its key and its header block, each only where there is one
    message::batch, message::batch1  in the layout `batches`: all of a batch, in pieces where it is large

No topic has a colon in its name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final

from delivery.errors import InvalidRequest
from delivery.ids import SEQUENCES_PER_MS
from delivery.model import PARTITIONS_MAX, check_name

BATCH_FAMILY: Final = "batch"
MESSAGE_FAMILY: Final = "message"
FAMILIES: Final = (BATCH_FAMILY, MESSAGE_FAMILY)
TABLE_ROW: Final = b"\xff\xff"
TABLE: Final = b"batch:table"
OWNER: Final = b"batch:owner"
CHECKPOINT: Final = b"batch:checkpoint"
HEAD: Final = b"batch:head"
TOPICS: Final = b"batch:topics"
MESSAGES: Final = b"message"
"""All columns of the family."""
BODY: Final = b"message:"
KEY: Final = b"message::key"
HEADERS: Final = b"message::headers"
PACKED: Final = b"message::batch"

TABLE_NAME_MAX: Final = 240
"""A table's name is that of a folder in HBase's file system, where 255 bytes is a common limit."""

REGIONS_MAX: Final = 64
"""A region costs a server memory whether it is used or not; several partitions share one above this."""

_PART = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_]{1,64}\Z", re.ASCII)
_PARTITION: Final = struct.Struct(">H")
_ID: Final = struct.Struct(">HQH")
_MESSAGE: Final = struct.Struct(">HQHQ")


def table_name(prefix: str, queue: str, generation: str) -> str:
    """The table of one generation of a queue. Raises InvalidRequest for names that HBase cannot have."""
    check_name("queue", queue)
    if not _PART.match(generation):
        raise InvalidRequest(f"{generation[:60]!r} is no generation of a queue")
    name = f"{prefix}.{generation}.{queue}"
    if len(name) > TABLE_NAME_MAX:
        raise InvalidRequest(f"queue {queue[:60]}… has too long a name for a table of HBase")
    return name


def queue_of(prefix: str, table: str) -> tuple[str, str] | None:
    """Queue and generation of a table, None for a table that is none of ours."""
    parts = table.split(".", 2)
    return (parts[2], parts[1]) if len(parts) == 3 and parts[0] == prefix else None


def check_prefix(prefix: str) -> str:
    """`prefix` if it may begin the names of tables. Raises InvalidRequest."""
    namespace, _, name = prefix.rpartition(":")
    if not _PART.match(name) or name.startswith("-") or not (_NAMESPACE.match(namespace) or name == prefix):
        raise InvalidRequest(
            f"{prefix[:60]!r} is no prefix of tables: use A-Z a-z 0-9 _ -, not - first; before that, if it is to be in"
            " a namespace of HBase, that with a colon"
        )
    return prefix


def namespace_of(prefix: str) -> str:
    """The namespace of HBase in which its tables are, empty for HBase's default."""
    return prefix.rpartition(":")[0]


def partition_row(partition: int) -> bytes:
    """The row of a partition; it comes before those of its messages."""
    assert 0 <= partition < PARTITIONS_MAX
    return _PARTITION.pack(partition)


def partition_end(partition: int) -> bytes:
    """Where the rows of a partition end."""
    return _PARTITION.pack(partition + 1)


def splits(partitions: int) -> list[bytes]:
    """Where the regions of a new table begin, but for the first: a region per partition, up to REGIONS_MAX."""
    regions = min(partitions, REGIONS_MAX)
    return [_PARTITION.pack(number * partitions // regions) for number in range(1, regions)]


def from_id(partition: int, message_id: int) -> bytes:
    """Where the rows of an id begin, whatever their epoch."""
    return _ID.pack(partition, message_id // SEQUENCES_PER_MS, message_id % SEQUENCES_PER_MS)


def message_row(partition: int, message_id: int, epoch: int) -> bytes:
    """The row of a message."""
    return _MESSAGE.pack(partition, message_id // SEQUENCES_PER_MS, message_id % SEQUENCES_PER_MS, epoch)


def message_rows(partition: int, ids: Iterable[int], epoch: int) -> list[bytes]:
    """The rows of messages."""
    pack, per_ms = _MESSAGE.pack, SEQUENCES_PER_MS
    return [pack(partition, number // per_ms, number % per_ms, epoch) for number in ids]


def id_and_epoch(row: bytes) -> tuple[int, int]:
    """What the row of a message says. Raises struct.error for another row."""
    _, ms, sequence, epoch = _MESSAGE.unpack(row)
    return ms * SEQUENCES_PER_MS + sequence, epoch
