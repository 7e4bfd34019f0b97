"""Whether a published batch may be stored: checked whole before anything of it counts. A decision without I/O."""

from __future__ import annotations

from delivery.batch import Batch, Header, is_aside, peek
from delivery.batch.layout import SPARSE, check_payload
from delivery.errors import CorruptRecord, InvalidRequest, MessageTooLarge
from delivery.messaging.marks import pointers_in
from delivery.model import BODY_BYTES_LIMIT, HEADERS_BYTES_MAX, KEY_BYTES_MAX, QueueSettings, check_topic


def admit_copied(data: bytes, partition: int) -> Header:
    """The header of a batch that another queue has stored, with the ids of there.

    Messages of transactions are refused: those of another cluster mean nothing to the service here, or something else,
    and readers would see what was never committed. Raises as `admit`.
    """
    header, batch = _whole(data, partition)
    if not header.base_id:
        raise InvalidRequest("a batch that no queue has stored yet has no ids to keep: publish it")
    if pointers_in(data):
        raise InvalidRequest("messages of transactions mean something in their own cluster alone: they are not copied")
    _check_topics(batch)
    _check_sizes(batch, BODY_BYTES_LIMIT)
    return header


def admit(data: bytes, partition: int, settings: QueueSettings, *, aside: bool = False) -> Header:
    """The header of a batch that may be stored in `partition` of a queue with these settings.

    Only the engine's own batches may be `aside` (see `model.ASIDE`).

    Raises CorruptRecord for bytes that are no whole batch with right checksums, MessageTooLarge for a body, key or
    header block over its limit, InvalidRequest for everything else that a publisher must not send.
    """
    header, batch = _whole(data, partition)
    if header.base_id or header.epoch:
        raise InvalidRequest("a batch that was stored already cannot be published: pack its messages anew")
    if not (aside and is_aside(header)):
        _check_topics(batch)
    _check_sizes(batch, settings.body_bytes_max)
    return header


def _whole(data: bytes, partition: int) -> tuple[Header, Batch]:
    header = peek(data)
    if header is None:
        raise CorruptRecord(f"{len(data)} bytes are no record batch")
    check_payload(header, data)
    batch = Batch(header, data)
    if header.partition != partition:
        raise InvalidRequest(f"a batch made for partition {header.partition} was published to {partition}")
    if header.flags & SPARSE:
        raise InvalidRequest("a batch with gaps cannot be published: it is what a topic filter leaves of another")
    return header, batch


def _check_topics(batch: Batch) -> None:
    for topic in batch.topics:
        check_topic(topic)


def _check_sizes(batch: Batch, body_bytes_max: int) -> None:
    for what, size, limit in (
        ("a body", batch.body_length_max, body_bytes_max),
        ("a key", batch.key_length_max, KEY_BYTES_MAX),
        ("a header block", batch.header_block_max, HEADERS_BYTES_MAX),
    ):
        if size > limit:
            raise MessageTooLarge(f"{what} of {size} bytes is over the limit of {limit}")
