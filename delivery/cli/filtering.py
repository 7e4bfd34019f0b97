"""`hoot subscription update` and `explain`: what a subscription takes, and why it took a message or did not.

The JSON form of an explanation is `{queue, subscription, message, explanations}`, and per partition that holds a
message of that id `{partition, topic, taken, refused_by, waits_for, acknowledged, parked, passed_by, dead_letters,
dead_letters_until, rules}`, where `waits_for` is a transaction in progress or null, `parked` null or `{failures,
last_error}` of the key that waits, and `dead_letters` are those of the message, each `{queue, id, time, reason,
failures, last_error}`, up to which id they were looked through, null for all. A rule and each of its parts is `{text,
value, error, parts}`; `value` is null where it could not be evaluated, and `error` says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from delivery.cli import flowing, options, retrying
from delivery.cli.output import age, moment, show_json
from delivery.messaging.marks import pointer_in

if TYPE_CHECKING:
    from delivery.client import Explained
    from delivery.client.deadletters import StoredLetter
    from delivery.filters.explaining import Part
    from delivery.metastore.records import SubscriptionRecord

NoFilter = Annotated[bool, typer.Option("--no-filter", help="Take the filter away.")]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="Take messages of all topics.")]
MessageOption = Annotated[str, typer.Option("--message", metavar="ID", help="The message's id.", show_default=False)]
Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, metavar="N", show_default="all that hold it", help="Of the message."),
]

_PASSED = {
    "newest": ", and may not have delivered it: it began with the newest message of each key",
    "bound": ", and may not have delivered it: only the newest ones matter (bound), and this is none of them",
}
_REASONS = {
    "partition": "the subscription does not read this partition",
    "start": "the subscription began behind it",
    "replay": "the replay ends before it",
    "topics": "its topic is none of the subscription's",
    "filter": "the filter does not hold for it",
    "rolled_back": "what its transaction published was rolled back",
    "invalid": "its transaction is invalid",
}


def update(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    topics: options.Topics = None,
    all_topics: AllTopics = False,
    filter: options.Filter = None,
    no_filter: NoFilter = False,
    retry: retrying.Retry = None,
    bound: options.Bound = None,
    kind: options.Kind = None,
    isolation: options.Isolation = None,
    messages_per_second: flowing.MessagesPerSecond = None,
    bytes_per_second: flowing.BytesPerSecond = None,
    window_messages: flowing.WindowMessages = None,
    window_bytes: flowing.WindowBytes = None,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Change what a subscription takes, how fast, and what becomes of messages that are not handled.

    What is not named stays. A running delivery follows at once; its subscriber hears of another order or
    timeout_seconds within half a minute. The kind can be changed while nobody is attached. With --json: {queue,
    subscription, updated, topics, filter, retry, bound, flow, kind, isolation}.
    """
    from delivery.client import connect
    from delivery.metastore.groups import check_kind
    from delivery.model import check_isolation

    flow = flowing.given(
        messages_per_second=messages_per_second, bytes_per_second=bytes_per_second, window_messages=window_messages,
        window_bytes=window_bytes,
    )  # fmt: skip
    changes = {
        **_selection(topics, filter, all_topics=all_topics, no_filter=no_filter),
        **({"retry": changed} if (changed := retrying.asked(retry)) else {}),
        **({"flow": flow} if flow else {}),
        **({} if bound is None else {"bound": bound}),
        **({} if kind is None else {"kind": check_kind(kind)}),
        **({} if isolation is None else {"isolation": check_isolation(isolation)}),
    }
    if not changes:
        raise typer.BadParameter(
            "nothing to change: give --topic, --all-topics, --filter, --no-filter, --retry, --bound, --kind,"
            " --isolation or a limit"
        )
    with connect(zookeeper) as client:
        now = client.update_subscription(queue, name, **changes, dry_run=dry_run)
    if as_json:
        show_json({"queue": queue, "subscription": name, "updated": not dry_run, **_preferences(now)})
        return
    says = f"topics {', '.join(now.topics) or 'all'}; filter {now.filter or 'none'}; {retrying.described(now.retry)}"
    says += f"; flow {flowing.described(now.flow)}; {now.kind}; {now.isolation}"
    print(f"{'would update' if dry_run else 'updated'} subscription {name} of queue {queue}: {says}")


def _selection(
    topics: list[str] | None, filter: str | None, *, all_topics: bool, no_filter: bool
) -> dict[str, Any]:  # fmt: skip
    """What of topics and filter is named, None for one that is taken away. Raises typer.BadParameter."""
    if (topics and all_topics) or (filter is not None and no_filter):
        raise typer.BadParameter("an option and its opposite: give one of them")
    found: dict[str, Any] = {}
    if topics or all_topics:
        found["topics"] = None if all_topics else topics
    if filter is not None or no_filter:
        found["filter"] = filter
    return found


def explain(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    message: MessageOption,
    partition: Partition = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Say which rule of a subscription takes or refuses a message: each part of its filter, with its value.

    An id may be that of one message in each partition. Told is what holds by the preferences as they are now; and, of a
    message that was given up, as which dead letter it is kept, since when and why. With isolation committed it tells,
    too, what became of the message's transaction, and which one the message waits for.
    """
    from delivery.client import connect
    from delivery.ids import MessageId

    number = MessageId.parse(message)
    with connect(zookeeper) as client:
        found = client.explain(queue, name, number, partition)
    if as_json:
        explanations = [_fields(one) for one in found]
        show_json({"queue": queue, "subscription": name, "message": str(number), "explanations": explanations})
        return
    for one in found:
        _print(one)


def rule(filter_: str | None) -> Any:  # noqa: ANN401 - whatever JSON holds
    """The JSON form of a filter as it is kept."""
    return None if filter_ is None else msgspec.json.decode(filter_)


def _preferences(now: SubscriptionRecord) -> dict[str, Any]:
    return {
        "topics": list(now.topics),
        "filter": rule(now.filter),
        "retry": msgspec.structs.asdict(now.retry),
        "bound": now.bound,
        "flow": msgspec.structs.asdict(now.flow),
        "kind": now.kind,
        "isolation": now.isolation,
    }


def _fields(found: Explained) -> dict[str, Any]:
    parked = found.parked
    return {
        "partition": found.message.partition,
        "topic": found.message.topic,
        "taken": found.refused_by is None and found.waits_for is None,
        "refused_by": found.refused_by,
        "waits_for": found.waits_for,
        "acknowledged": found.acknowledged,
        "parked": parked and {"failures": parked.failures, "last_error": parked.last_error},
        "passed_by": found.passed_by,
        "dead_letters": [_letter(one) for one in found.dead_letters],
        "dead_letters_until": found.letters_until and str(found.letters_until),
        "rules": [msgspec.to_builtins(one) for one in found.rules],
    }


def _letter(one: StoredLetter) -> dict[str, Any]:
    return {
        "queue": one.stored.queue,
        "id": str(one.id),
        "time": moment(one.id.timestamp_ms),
        "reason": one.told("reason"),
        "failures": int(one.told("failures")),
        "last_error": one.told("last-error"),
    }


def _reason(letter: StoredLetter) -> str:
    from delivery.dispatch.wording import why

    return f"{letter.told('reason')}{why(letter.told('last-error'))}"


def _print(found: Explained) -> None:
    message = found.message
    print(f"message {message.id} in partition {message.partition}: {_outcome(found)}{_standing(found)}")
    for letter in found.dead_letters:
        print(f"  given up {age(letter.id.timestamp_ms)}: {_reason(letter)}; it is {letter.id} in {letter.stored.queue}"
              " (`hoot dlq show|redrive|drop`)")  # fmt: skip
    if found.letters_until is not None:
        print(f"  there are very many dead letters: of what was given up behind {found.letters_until}, or sent back or"
              " dropped, nothing is said here (`hoot dlq list` reads all)")  # fmt: skip
    for one in found.rules:
        _print_part(one, 1)


def _standing(found: Explained) -> str:
    """How far it has come."""
    from delivery.dispatch.wording import times, why

    if (parked := found.parked) is not None:
        failed = f"failed {times(parked.failures)}{why(parked.last_error)}"
        return f"; it is parked, for what its key waits for {failed}: `hoot subscription parked|release`"
    if not found.acknowledged:
        return ""
    return f"; the subscription is past it{_PASSED.get(found.passed_by or '', '')}"


def _outcome(found: Explained) -> str:
    if found.refused_by is not None:
        return f"refused: {_REASONS[found.refused_by]}"
    if found.waits_for is None:
        return "taken"
    own = found.waits_for == pointer_in(found.message.header_block)
    whose = "its own transaction" if own else "one before it"
    return f"waits for transaction {found.waits_for}, which is in progress ({whose}; `hoot transaction info` shows it)"


def _print_part(part: Part, level: int) -> None:
    value = f"fails: {part.error}" if part.error is not None else msgspec.json.encode(part.value).decode()
    if len(value) > 200:
        value = f"{value[:200]}…"
    print(f"{'  ' * level}{part.text}  →  {value}")
    for below in part.parts:
        _print_part(below, level + 1)
