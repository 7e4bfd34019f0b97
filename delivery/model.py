"""The words of Hoot as values: messages, queues, limits on names and sizes, and the route from a key to a partition.

Seed 004, section 3.2: a queue has up to 32767 partitions; a message has a partition, an id that the host gives, a
topic and a body. Hoot adds an optional key and headers. Nothing here does I/O.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, cast, get_args
from zlib import crc32

import msgspec

from delivery.errors import CorruptRecord, InvalidRequest, MessageTooLarge, UnknownPartition
from delivery.ids import MessageId

PARTITIONS_MAX: Final = 32767
NAME_MAX: Final = 249
KEY_BYTES_MAX: Final = 32 * 1024
HEADERS_BYTES_MAX: Final = 64 * 1024
BODY_BYTES_DEFAULT: Final = 1024 * 1024
BODY_BYTES_LIMIT: Final = 8 * 1024 * 1024
"""No queue can allow larger bodies than this: a batch with one must fit a frame."""

Durability = Literal["fsync", "os", "memory"]
"""What an acknowledged publish means: on disk; handed to the operating system; in this process's memory only."""
DURABILITIES: Final[tuple[str, ...]] = get_args(Durability)

Layout = Literal["rows", "batches"]
"""How messages lie in HBase: a row each, which anything can read; or a cell for each record batch, for rate."""
LAYOUTS: Final[tuple[str, ...]] = get_args(Layout)

Isolation = Literal["uncommitted", "committed"]
"""What readers see of transactions: everything, or nothing before its commit."""

ASIDE: Final = "hoot."
"""Begins the topics of what the engine itself keeps between the messages of a partition (`messaging.marks`).

Batches with such a topic have no other, and no subscription or scanner gets them.
"""

ARCHIVE_FOLDER: Final = re.compile(r"/[^\x00-\x1f]{0,1000}\Z")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z", re.ASCII)
_LENGTH16 = struct.Struct("<H")
_LENGTH32 = struct.Struct("<I")


def check_name(kind: str, name: object) -> str:
    """`name` if it may name a queue, a subscription or a topic: `[A-Za-z0-9._-]{1,249}`, not `.` or `..`."""
    if not isinstance(name, str) or not _NAME.match(name) or name in (".", ".."):
        shown = repr(name)[:60]
        raise InvalidRequest(f"{shown} is no {kind} name: use 1 to {NAME_MAX} of the characters A-Z a-z 0-9 . _ -")
    return name


def subscriptions_own(queue: str, subscription: str, ending: str, what: str, instead: str) -> str:
    """The name of a queue that belongs to one subscription. Raises InvalidRequest where the two names leave none.

    `what` is kept in it, and `instead` what to do where it cannot be.
    """
    name = f"{queue}.{subscription}{ending}"
    if len(name) > NAME_MAX:
        raise InvalidRequest(
            f"the names of queue and subscription are too long together for {what}: {name[:60]}… has {len(name)}"
            f" characters, {NAME_MAX} are the limit; {instead}"
        )
    return name


def check_topic(topic: str) -> str:
    """`topic` if it may label a message; the empty string means no topic."""
    if str(topic).startswith(ASIDE):
        raise InvalidRequest(f"{topic[:60]!r} is no topic name: those that begin with {ASIDE!r} are the engine's own")
    return topic if topic == "" else check_name("topic", topic)


def check_isolation(isolation: object) -> Isolation:
    """`isolation` if there is such a one. Raises InvalidRequest."""
    if isolation not in get_args(Isolation):
        raise InvalidRequest(f"isolation is one of {', '.join(get_args(Isolation))}, not {str(isolation)[:40]!r}")
    return cast("Isolation", isolation)


def check_partition(partition: object, partitions: int, queue: str) -> int:
    """`partition` if the queue has it. Raises UnknownPartition."""
    if not isinstance(partition, int) or not 0 <= partition < partitions:
        raise UnknownPartition(f"queue {queue!r} has partitions 0 to {partitions - 1}, not {str(partition)[:20]}")
    return partition


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key: CRC-32 (ISO-HDLC, zlib's) of the key, modulo the queue's partitions.

    Stable across versions and languages, so that a producer anywhere routes alike.
    """
    return crc32(key) % partitions


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as a callback or a scanner receives it. Immutable; safe to keep and to hand to other threads."""

    number: int
    body: bytes
    topic: str
    key: bytes | None
    partition: int
    queue: str
    header_block: bytes = b""

    @property
    def id(self) -> MessageId:
        """The id that the host gave; rises strictly within a partition."""
        return MessageId(self.number)

    @property
    def publish_time(self) -> float:
        """When the host took the message, in seconds since 1970 (the id's time stamp)."""
        return (self.number >> 15) / 1000

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers, decoded on each access. Raises CorruptRecord when the publisher wrote nonsense."""
        return decode_headers(self.header_block) if self.header_block else {}


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator chooses for a queue; see `check_settings` for the limits."""

    partitions: int = 1
    durability: Durability = "fsync"
    ttl_seconds: float | None = None
    """Messages older than this are dropped, a segment at a time. None keeps them."""
    retention_bytes: int | None = None
    """The oldest segments of a partition are dropped above this size. None keeps them."""
    backlog_messages: int | None = None
    """Publishers to a partition wait while a subscription has not acknowledged so many of its messages. None: never."""
    backlog_bytes: int | None = None
    """The same by the size of what is not acknowledged."""
    body_bytes_max: int = BODY_BYTES_DEFAULT
    layout: Layout | None = None
    """Of the messages in HBase, for good; None as the hosts are set up. No other store has layouts."""
    archive: str | None = None
    """The folder of its archive (docs/spark.md); None before the first `hoot spark archive`."""
    archive_first: bool = False
    """Retention drops only what is archived, however long nobody archives anything."""
    closed: bool = False
    """Nothing can be published to it; it takes what is copied from another queue, under the ids of there."""

    @property
    def has_backlog_limit(self) -> bool:
        """Whether publishers may have to wait for subscriptions."""
        return self.backlog_messages is not None or self.backlog_bytes is not None


class ArchivedRange(msgspec.Struct, frozen=True, array_like=True):
    """A file of a partition's archive. It holds all that the partition held above the range before, up to `until`."""

    first_id: int
    """Of its first batch."""
    until: int
    messages: int
    bytes: int
    """Of the file."""
    crc: int
    """CRC-32C of the file."""


def check_settings(settings: QueueSettings) -> QueueSettings:
    """`settings` if every field is within its limits; otherwise InvalidRequest naming all that are not."""
    wrong = []
    if not 1 <= settings.partitions <= PARTITIONS_MAX:
        wrong.append(f"partitions must be 1 to {PARTITIONS_MAX}, not {settings.partitions}")
    if settings.durability not in DURABILITIES:
        wrong.append(f"durability must be one of {', '.join(DURABILITIES)}, not {settings.durability!r}")
    if settings.layout is not None and settings.layout not in LAYOUTS:
        wrong.append(f"layout must be one of {', '.join(LAYOUTS)}, not {str(settings.layout)[:40]!r}")
    if settings.ttl_seconds is not None and not 1 <= settings.ttl_seconds <= 3.2e9:
        wrong.append(f"ttl must be 1 second to 100 years, not {settings.ttl_seconds} s")
    if settings.retention_bytes is not None and not 1 << 20 <= settings.retention_bytes <= 1 << 60:
        wrong.append(f"retention must be at least 1 MiB, not {settings.retention_bytes} bytes")
    wrong += _wrong_backlog(settings)
    if settings.archive is not None and not ARCHIVE_FOLDER.match(settings.archive):
        wrong.append(f"archive must be the absolute path of a folder, not {settings.archive[:80]!r}")
    if not 1 <= settings.body_bytes_max <= BODY_BYTES_LIMIT:
        wrong.append(f"body limit must be 1 byte to {BODY_BYTES_LIMIT >> 20} MiB, not {settings.body_bytes_max} bytes")
    if wrong:
        raise InvalidRequest("; ".join(wrong))
    return settings


def _wrong_backlog(settings: QueueSettings) -> list[str]:
    messages, size, kept = settings.backlog_messages, settings.backlog_bytes, settings.retention_bytes
    wrong = []
    if messages is not None and not 1 <= messages <= 1 << 50:
        wrong.append(f"backlog messages must be at least 1, not {messages}")
    if size is not None and not 1 << 10 <= size <= 1 << 60:
        wrong.append(f"backlog bytes must be at least 1 KiB, not {size} bytes")
    if size is not None and kept is not None and size >= kept:
        wrong.append(
            f"retention would drop what is above {kept} bytes before publishers wait at a backlog of {size} bytes: let"
            " the backlog be the smaller one"
        )
    return wrong


def encode_headers(headers: Mapping[str, bytes]) -> bytes:
    """A header block: per header a u16 name length, the name in UTF-8, a u32 value length, the value (little-endian).

    Raises InvalidRequest on a bad name or value, MessageTooLarge above 64 KiB in total.
    """
    parts: list[bytes] = []
    given: Iterable[tuple[object, object]] = headers.items()
    for name, value in given:
        if not isinstance(name, str) or not name or not isinstance(value, bytes | bytearray | memoryview):
            raise InvalidRequest(f"header {str(name)[:40]!r}: names are text, not empty; values are bytes")
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"header name {name[:40]!r} is no Unicode text") from None
        if len(raw) > NAME_MAX:
            raise InvalidRequest(f"header name {name[:40]!r}… is longer than {NAME_MAX} bytes")
        parts += (_LENGTH16.pack(len(raw)), raw, _LENGTH32.pack(len(value)), bytes(value))
    block = b"".join(parts)
    if len(block) > HEADERS_BYTES_MAX:
        raise MessageTooLarge(f"headers take {len(block)} bytes; the limit is {HEADERS_BYTES_MAX}")
    return block


def decode_headers(block: bytes) -> dict[str, bytes]:
    """The headers in a block written by `encode_headers`. Raises CorruptRecord when it does not parse."""
    headers: dict[str, bytes] = {}
    at, end = 0, len(block)
    try:
        while at < end:
            name_end = at + 2 + _LENGTH16.unpack_from(block, at)[0]
            value_end = name_end + 4 + _LENGTH32.unpack_from(block, name_end)[0]
            if value_end > end:
                raise CorruptRecord("a header block ends in the middle of a value")
            headers[block[at + 2 : name_end].decode()] = block[name_end + 4 : value_end]
            at = value_end
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptRecord(f"a header block does not parse: {error}") from error
    return headers


def tolerant_headers(block: bytes) -> dict[str, bytes]:
    """As `decode_headers`, and no headers where a publisher wrote nonsense: what lies behind must still be reached."""
    try:
        return decode_headers(block)
    except CorruptRecord:
        return {}


def lay_out(*kinds: type[msgspec.Struct]) -> None:
    """To be called when a module with records that several threads decode is imported.

    msgspec lays the fields of a struct out when it first decodes one, and crashes the process when another thread
    decodes the same kind in the midst of that.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


def is_generation(found: str, wanted: str) -> bool:
    """Whether a queue of the generation `found` is the one that is wanted; an empty one stands for any."""
    return wanted in ("", found)


def near_names(name: str, known: Iterable[str]) -> Sequence[str]:
    """Up to three of `known` that a person may have meant by `name`, best first."""
    from difflib import get_close_matches

    return get_close_matches(name, list(known), n=3, cutoff=0.5)
