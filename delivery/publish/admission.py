"""Whether a published batch may be stored: checked whole before anything of it counts. A decision without I/O."""

from __future__ import annotations

from delivery.batch import Batch, Header, is_aside, peek
from delivery.batch.layout import SPARSE, check_payload
from delivery.errors import CorruptRecord, InvalidRequest, MessageTooLarge
from delivery.model import HEADERS_BYTES_MAX, KEY_BYTES_MAX, QueueSettings, check_topic


def admit(data: bytes, partition: int, settings: QueueSettings, *, aside: bool = False) -> Header:
    """The header of a batch that may be stored in `partition` of a queue with these settings.

    Only the engine's own batches may be `aside` (see `model.ASIDE`).

    Raises CorruptRecord for bytes that are no whole batch with right checksums, MessageTooLarge for a body, key or
    header block over its limit, InvalidRequest for everything else that a publisher must not send.
    """
    header = peek(data)
    if header is None:
        raise CorruptRecord(f"{len(data)} bytes are no record batch")
    check_payload(header, data)
    batch = Batch(header, data)
    _check_header(header, partition)
    if not (aside and is_aside(header, data)):
        for topic in batch.topics:
            check_topic(topic)
    _check_sizes(batch, settings)
    return header


def _check_header(header: Header, partition: int) -> None:
    if header.partition != partition:
        raise InvalidRequest(f"a batch made for partition {header.partition} was published to {partition}")
    if header.flags & SPARSE:
        raise InvalidRequest("a batch with gaps cannot be published: it is what a topic filter leaves of another")
    if header.base_id or header.epoch:
        raise InvalidRequest("a batch that was stored already cannot be published: pack its messages anew")


def _check_sizes(batch: Batch, settings: QueueSettings) -> None:
    for what, size, limit in (
        ("a body", batch.body_length_max, settings.body_bytes_max),
        ("a key", batch.key_length_max, KEY_BYTES_MAX),
        ("a header block", batch.header_block_max, HEADERS_BYTES_MAX),
    ):
        if size > limit:
            raise MessageTooLarge(f"{what} of {size} bytes is over the limit of {limit}")
