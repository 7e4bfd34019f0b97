"""Taking observations of what a host delivers. Nothing is read or asked, so that all can be taken at every scrape."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from delivery import wall
from delivery.dispatch.crew import Crew, Served
from delivery.dispatch.delivery import Delivery, Serving
from delivery.dispatch.link import Link
from delivery.dispatch.observation import Observation
from delivery.dispatch.parking import Parking
from delivery.dispatch.verdict import verdict
from delivery.dispatch.worker import Parts, SubscriptionWorker
from delivery.metastore.flow import Pause, lasting


class Moment(msgspec.Struct, frozen=True):
    """One moment by both clocks: what is noted by the one is told by the other."""

    wall_ms: int
    monotonic: float

    @classmethod
    def now(cls) -> Moment:
        """This one."""
        return cls(wall.ms(), time.monotonic())

    def ms(self, noted: float | None) -> int:
        """A noted time in milliseconds since 1970, 0 for none."""
        return 0 if noted is None else self.wall_ms - round((self.monotonic - noted) * 1000)


def observations(delivery: Delivery, at: Moment, partitions: Iterable[int] | None = None) -> Iterator[Observation]:
    """Of the partitions that a host serves, or tries to, in order; of those given alone."""
    for partition in sorted(delivery.known if partitions is None else delivery.known.intersection(partitions)):
        worker = delivery.workers.get(partition)
        if worker is None:
            trouble = delivery.troubles[partition]
            yield Observation(partition=partition, now_ms=at.wall_ms, stage="starting", trouble=trouble)
        elif isinstance(worker, Crew):
            yield _of_crew(delivery, worker, delivery.serving[partition], at)
        else:
            yield _of_worker(delivery, worker, delivery.serving[partition], delivery.way(partition).link, at)


def _of_crew(delivery: Delivery, crew: Crew, serving: Serving, at: Moment) -> Observation:
    """Of the member that is worst off, with the position and the sums of all."""
    every = [
        _of_member(delivery, crew, name, one, serving, at)
        for name, one in crew.served.items()
        if one.worker is not None or one.settling_since is not None
    ]
    if not every:
        return Observation(
            partition=crew.stream.partition, now_ms=at.wall_ms, stage="starting", trouble="its members get their shares"
        )
    worst = max(every, key=lambda one: (verdict(_aged(one)).rank, -one.position))
    return msgspec.structs.replace(
        worst, position=crew.position, out=sum(one.out for one in every), parked=sum(one.parked for one in every),
        parked_keys=sum(one.parked_keys for one in every), redelivered=sum(one.redelivered for one in every),
    )  # fmt: skip


def _aged(seen: Observation) -> Observation:
    """As if there were messages right behind its position: nobody has counted yet."""
    return msgspec.structs.replace(seen, oldest_ms=seen.position >> 15 if seen.position < seen.last else 0)


def _of_member(
    delivery: Delivery, crew: Crew, name: str, one: Served, serving: Serving, at: Moment
) -> Observation:  # fmt: skip
    if one.worker is not None:
        seen = _of_worker(delivery, one.worker, serving, one.seat.link, at)
        return msgspec.structs.replace(seen, member=name)
    asked = at.ms(one.settling_since)  # what it was sent before it has still to end: the question waits behind that
    return Observation(
        partition=crew.stream.partition, now_ms=at.wall_ms, began_ms=asked, position=crew.position, member=name,
        last=max(serving.owned.watermark, crew.position), out=1, out_since_ms=asked,
        **_unreachable(one.seat.link, at),
    )  # fmt: skip


def _of_worker(
    delivery: Delivery, worker: SubscriptionWorker, serving: Serving, link: Link | None, at: Moment
) -> Observation:  # fmt: skip
    parts = worker.parts
    window, pulse, partition = parts.window, parts.pulse, worker.stream.partition
    record = delivery.attached.subscription
    end = record.replay.end(partition) if record.replay else serving.owned.watermark
    paced = record.replay is not None or window.position < record.newest.get(partition, 0)
    return Observation(
        partition=partition, stage="no_listener" if link is None else "delivering", now_ms=at.wall_ms,
        began_ms=at.ms(pulse.began), position=window.position, heard=window.told,
        scanned=max(parts.scanner.after, window.position), last=max(end, window.position),
        trend=None if window.position >= end else pulse.trend, full=parts.sender.is_held_up,
        limited=parts.sender.is_limited,
        delivered_ms=at.ms(pulse.delivered_at), acknowledged_ms=at.ms(pulse.acknowledged_at),
        moved_ms=at.ms(pulse.moved_at), checkpointed_ms=at.ms(serving.progress.saved_at),
        redelivered=pulse.redelivered, filtered=delivery.is_filtered, paced=paced,
        reading_ms=0 if paced or _waiting(parts, at) else at.ms(parts.scanner.reading_since),
        shelving_ms=at.ms(parts.morgue.since), trouble=parts.morgue.trouble,
        **_out(parts, at), **_failing(parts, at), **_parked(parts.parking), **_unreachable(link, at),
        **_paused(record.pause, at), **_waiting(parts, at),
    )  # fmt: skip


def _paused(pause: Pause | None, at: Moment) -> dict[str, Any]:
    if (found := lasting(pause, at.wall_ms)) is None:
        return {}
    return {"paused_ms": found.since_ms, "paused_until_ms": found.until_ms or 0}


def _waiting(parts: Parts, at: Moment) -> dict[str, Any]:
    source = parts.committed
    if source is None or (waiting := source.waiting) is None:
        return {}
    trouble = "" if waiting.pointer else source.trouble
    return {"waiting_for": waiting.pointer, "waiting_ms": at.ms(waiting.since), "waiting_trouble": trouble}


def _out(parts: Parts, at: Moment) -> dict[str, Any]:
    again = parts.parking.out
    out = parts.window.unacknowledged + again
    return {"out": out, "out_since_ms": at.ms(parts.pulse.first_out_since) if out else 0}


def _failing(parts: Parts, at: Moment) -> dict[str, Any]:
    known, position = parts.first.attempts, parts.window.position
    if known is None or known.after != position or not known.failures:
        return {}
    again = parts.pulse.again_at
    again_ms = 0 if again is None or again <= at.monotonic else at.ms(again)
    return {"failing": position + 1, "failures": known.failures, "error": known.last_error, "again_ms": again_ms}


def _parked(parking: Parking) -> dict[str, Any]:
    if not parking:
        return {}
    waiting = parking.waiting()
    worst = max(waiting, key=lambda one: one.failures)
    return {
        "parked": sum(len(one.ids) for one in waiting), "parked_keys": len(waiting), "failures": worst.failures,
        "error": worst.last_error, "again_ms": min(one.due_ms for one in waiting), "parking_full": parking.is_full,
    }  # fmt: skip


def _unreachable(link: Link | None, at: Moment) -> dict[str, Any]:
    if link is None or link.down_since is None:
        return {}
    return {"unreachable_ms": at.ms(link.down_since), "unreachable": link.trouble}
