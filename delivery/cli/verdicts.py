"""How subscriptions are, for people and for programs: what `hoot subscription list|info` and `hoot check` show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from delivery.cli import flowing, pausing
from delivery.cli.filtering import rule
from delivery.cli.members import member_lines
from delivery.cli.output import NOTHING, Column, age, field_lines, moment, number, size, span, table_lines
from delivery.cli.retrying import described
from delivery.ids import MessageId

if TYPE_CHECKING:
    from delivery.client import Callback, Limits, SubscribedPartition, SubscriptionInfo, Verdict


def limits(stuck_seconds: float | None) -> Limits:
    """The limits with the one that commands let people choose."""
    from delivery.client import Limits

    return Limits() if stuck_seconds is None else Limits(stuck_seconds=stuck_seconds)


def words(judged: Verdict) -> str:
    """Its name as people read it: `handler stuck`."""
    return judged.name.replace("_", " ")


def list_lines(found: Sequence[SubscriptionInfo]) -> list[str]:
    """Subscriptions, one a line, each with its worst partition's verdict."""
    columns = [
        Column("queue"), Column("subscription"), Column("partitions", "right"), Column("topics"), Column("kind"),
        Column("attached"), Column("paused"),
        Column("lag", "right"), Column("behind", "right"), Column("verdict"),
    ]  # fmt: skip
    return table_lines(columns, [_row(one) for one in found])


def info_lines(found: SubscriptionInfo) -> list[str]:
    """A subscription: what it is, its partitions, and what is the matter with those that are not fine."""
    fields = field_lines([
        ("subscription", found.subscription),
        ("queue", found.queue),
        ("created", age(found.created_ms)),
        ("topics", ", ".join(found.topics) or "all"),
        ("filter", found.filter or "none"),
        ("kind", found.kind),
        ("isolation", found.isolation),
        *([("bound", f"the newest {number(found.bound)} messages of a partition")] if found.bound else []),
        *([("listener", found.listener or "none is attached")] if found.kind == "exclusive" else []),
        ("not handled", described(found.retry)),
        *([("replay", f"of {found.replay.of}, {'finished' if found.finished else 'not finished'}")]
          if found.replay else []),
        ("paused", pausing.described(found.pause)),
        ("flow", flowing.described(found.flow)),
    ])  # fmt: skip
    columns = [
        Column("partition", "right"), Column("position", "right"), Column("end", "right"), Column("lag", "right"),
        Column("bytes", "right"), Column("behind", "right"), Column("trend", "right"), Column("out", "right"),
        Column("parked", "right"), Column("again", "right"), Column("delivered"), Column("acknowledged"),
        Column("saved"), Column("host"), *([Column("member")] if found.members else []), Column("verdict"),
    ]  # fmt: skip
    several = len(found.partitions) > 1
    sums = ["total", "", "", number(found.lag), "", span(found.lag_seconds), "", "", number(found.parked)]
    total = [*sums, *[""] * (len(columns) - len(sums))]
    table = table_lines(columns, [_partition(found, one) for one in found.partitions], total=total if several else None)
    members = [] if found.kind == "exclusive" else ["", *member_lines(found)]
    return [*fields, *members, "", *table, *_reasons(found)]


def _partition(found: SubscriptionInfo, one: SubscribedPartition) -> list[str]:
    seen = one.observation
    return [
        str(one.partition), _id(one.position), _id(one.end), number(one.lag), size(seen.lag_bytes),
        span(one.lag_seconds), _trend(seen.trend), number(seen.out), number(one.parked), number(seen.redelivered),
        *(_ago(seen.now_ms, when) for when in (seen.delivered_ms, seen.acknowledged_ms, seen.checkpointed_ms)),
        one.host or NOTHING, *([found.holders.get(one.partition, seen.member or NOTHING)] if found.members else []),
        words(one.verdict),
    ]  # fmt: skip


def _reasons(found: SubscriptionInfo) -> list[str]:
    """For each verdict but `healthy` what it means, with the partitions that have it, and stacks."""
    lines: list[str] = []
    texts: dict[str, list[SubscribedPartition]] = {}
    for one in found.partitions:
        if one.verdict.name != "healthy":
            texts.setdefault(f"{words(one.verdict)}: {one.verdict.text}", []).append(one)
    for text, those in texts.items():
        since = _since(those[0])
        lines += ["", f"partition {', '.join(str(one.partition) for one in those)}: {text}{since}"]
        callback = those[0].observation.callback
        if callback is not None and those[0].verdict.level != "fine":
            lines += callback.stack.rstrip().splitlines()
    return lines


def _since(one: SubscribedPartition) -> str:
    since = one.verdict.since_ms
    return f" (since {span((one.observation.now_ms - since) / 1000)})" if since else ""


def _row(found: SubscriptionInfo) -> list[str]:
    partitions = "all" if found.all_partitions else str(len(found.partitions))
    topics = ", ".join(found.topics) or "all"
    judged = NOTHING if found.worst is None else words(found.worst.verdict)
    if found.worst is not None and found.worst.verdict.holding:
        judged = f"{judged}, publishers wait"
    progress = [number(found.lag), span(found.lag_seconds), judged]
    attached = found.listener or NOTHING
    if found.kind != "exclusive":
        attached = f"{len(found.attached)} members"
    paused = pausing.described(found.pause) if found.pause else NOTHING
    return [found.queue, found.subscription, partitions, topics, found.kind, attached, paused, *progress]


def list_fields(found: Sequence[SubscriptionInfo]) -> list[dict[str, Any]]:
    """The JSON form of many."""
    return [summary_fields(one) for one in found]


def summary_fields(found: SubscriptionInfo) -> dict[str, Any]:
    """The JSON form of a subscription without its partitions."""
    worst = found.worst
    return {
        "queue": found.queue,
        "subscription": found.subscription,
        "created": moment(found.created_ms),
        "all_partitions": found.all_partitions,
        "topics": list(found.topics),
        "filter": rule(found.filter),
        "kind": found.kind,
        "bound": found.bound,
        "isolation": found.isolation,
        "listener": found.listener,
        "members": [msgspec.structs.asdict(one) for one in found.members],
        "retry": msgspec.structs.asdict(found.retry),
        "replay": None if found.replay is None else {"of": found.replay.of, "finished": found.finished},
        "pause": pausing.pause_fields(found.pause),
        "flow": msgspec.to_builtins(found.flow),
        "lag": found.lag,
        "lag_seconds": _rounded(found.lag_seconds),
        "parked": found.parked,
        "verdict": None if worst is None else {**verdict_fields(worst), "partition": worst.partition},
    }


def info_fields(found: SubscriptionInfo) -> dict[str, Any]:
    """The JSON form of a subscription with its partitions."""
    partitions = [{**_partition_fields(one), "member": found.holders.get(one.partition)} for one in found.partitions]
    return {**summary_fields(found), "partitions": partitions}


def verdict_fields(one: SubscribedPartition) -> dict[str, Any]:
    """The JSON form of a partition's verdict."""
    judged = one.verdict
    return {"name": judged.name, "level": judged.level, "since": moment(judged.since_ms), "text": judged.text}


def _partition_fields(one: SubscribedPartition) -> dict[str, Any]:
    seen = one.observation
    return {
        "partition": one.partition,
        "start": str(one.start),
        "position": str(one.position),
        "end": None if one.end is None else str(one.end),
        "lag": one.lag,
        "lag_bytes": seen.lag_bytes,
        "lag_seconds": _rounded(one.lag_seconds),
        "trend": _rounded(seen.trend),
        "out": seen.out,
        "redelivered": seen.redelivered,
        "parked": one.parked,
        "delivered": moment(seen.delivered_ms),
        "acknowledged": moment(seen.acknowledged_ms),
        "checkpointed": moment(seen.checkpointed_ms),
        "host": one.host,
        "verdict": verdict_fields(one),
        "callback": None if seen.callback is None else _callback_fields(seen.callback),
    }


def _callback_fields(callback: Callback) -> dict[str, Any]:
    message = str(MessageId(callback.message)) if callback.message else None
    return {**msgspec.structs.asdict(callback), "message": message}


def _id(message_id: MessageId | None) -> str:
    return str(message_id) if message_id else NOTHING


def _ago(now_ms: int, when_ms: int) -> str:
    """By the host's own clock."""
    return f"{span((now_ms - when_ms) / 1000)} ago" if when_ms else NOTHING


def _trend(trend: float | None) -> str:
    return NOTHING if trend is None else f"{trend:+.1f} s/s"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
