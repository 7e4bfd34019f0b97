"""Mistakes of a publisher to plant (see bugs): in what it has under way, and in how it moves that."""

from __future__ import annotations

from typing import Any
from unittest import mock

from delivery.client import inflight
from delivery.client.inflight import Lane
from delivery.client.sender import Sender
from delivery.errors import NotOwner, Throttled


def numbered_anew() -> Any:
    """What has no answer is sent again under a new number."""
    broken = Lane.broken

    def forgetful(lane: Lane, error: Any) -> None:
        broken(lane, error)
        for entry in lane._returned:
            entry.sequence, entry.data = 0, b""
        lane._restart = True

    return mock.patch.object(Lane, "broken", forgetful)


def swapped_after_redirect() -> Any:
    """Batches that a host sent elsewhere go there in the order in which they came back, the last one first."""
    take_back = Lane._take_back

    def swapping(lane: Lane) -> Any:
        if any(isinstance(entry.error, NotOwner) for entry in lane._returned) and _none_in_doubt(lane):
            lane._returned.reverse()
            for entry in lane._returned:
                entry.sequence, entry.data = 0, b""
            lane._restart = True
        return take_back(lane)

    return mock.patch.object(Lane, "_take_back", swapping)


def gone_on_during_retry() -> Any:
    """What failed is sent again behind all that waits, not before it."""

    take_back = Lane._take_back

    def behind(lane: Lane) -> Any:
        if not _none_in_doubt(lane):
            return take_back(lane)
        lane._waiting += lane._returned
        lane._returned.clear()
        for entry in lane._waiting:
            entry.sequence, entry.data = 0, b""
        lane._restart = True
        return []

    return mock.patch.object(Lane, "_take_back", behind)


def doubt_forgotten() -> Any:
    """What a later attempt is refused counts, whatever became of the earlier one."""
    failed = Lane.failed

    def sure(lane: Lane, error: Any) -> None:
        entry = lane._flying[0]
        failed(lane, error)
        if isinstance(error, inflight._NOT_STORED):
            entry.doubt = False

    return mock.patch.object(Lane, "failed", sure)


def deadline_called_refused() -> Any:
    """What is given up while its outcome is open is told as not stored."""

    def sure(entries: Any) -> list[Any]:
        found = []
        for entry in entries:
            if not entry.reported:
                entry.reported = True
                found.append((entry.batch, Throttled("it was not stored in time")))
        return found

    return mock.patch.object(inflight, "_reports", sure)


def answers_mixed_up() -> Any:
    """An answer is given to the newest batch in flight instead of to the oldest."""

    def newest(lane: Lane) -> Any:
        entry = lane._flying.pop()
        lane._proven = not lane._returned
        return None if entry.reported else entry.batch

    return mock.patch.object(Lane, "stored", newest)


def answered_by_itself() -> Any:
    """A batch that is sent counts as stored when its connection breaks."""
    lost = Sender._lost

    def hopeful(sender: Sender, stream: Any, error: Any) -> None:
        while stream.lane.flying:
            batch = stream.lane.stored()
            if batch is not None:
                sender._release(batch, None)
                batch.stored(1, "fsync")
        lost(sender, stream, error)

    return mock.patch.object(Sender, "_lost", hopeful)


def _none_in_doubt(lane: Lane) -> bool:
    """Whether nothing can be stored twice by another order, so that the order alone is wrong."""
    return not any(entry.doubt for entry in (*lane._returned, *lane._waiting))
