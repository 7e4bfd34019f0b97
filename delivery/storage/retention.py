"""Which closed segments a queue's settings no longer keep: a decision over their sizes and newest ids."""

from __future__ import annotations

from collections.abc import Sequence

from delivery.ids import ID_MAX, first_id_at
from delivery.model import QueueSettings


def oldest_kept_id(settings: QueueSettings, now_ms: int) -> int:
    """The lowest id that is young enough to keep, 0 without a TTL."""
    return 0 if settings.ttl_seconds is None else first_id_at(now_ms - round(settings.ttl_seconds * 1000))


def expired(
    segments: Sequence[tuple[int, int]], held: int, settings: QueueSettings, now_ms: int, until: int = ID_MAX
) -> int:
    """How many of the oldest segments go; each is (bytes, last id), `held` all bytes including the open segment's.

    Age first: a segment goes when its newest message is too old. Then size: the oldest go until the limit holds. None
    goes that holds an id above `until`.
    """
    oldest = oldest_kept_id(settings, now_ms)
    limit = settings.retention_bytes
    for place, (size, last_id) in enumerate(segments):
        if last_id > until or (last_id >= oldest and (limit is None or held <= limit)):
            return place
        held -= size
    return len(segments)
