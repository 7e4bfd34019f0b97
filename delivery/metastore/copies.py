"""The copy beside a queue in which a compaction puts what it keeps, until it is in the queue's place."""

from __future__ import annotations

from typing import Final

from delivery.errors import InvalidRequest
from delivery.model import NAME_MAX

COMPACTING: Final = ".compacting"
"""How the names of such copies end."""


def compacting_queue(queue: str) -> str:
    """The copy of a queue. Raises InvalidRequest where the name leaves none for it."""
    name = f"{queue}{COMPACTING}"
    if len(name) > NAME_MAX:
        raise InvalidRequest(f"the name of queue {queue[:60]}… is too long to be compacted in place: {name[:60]}…")
    return name
