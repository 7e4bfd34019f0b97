"""Why a partition of a subscription is as silent as it is: one verdict for every observation, a plain decision.

The first rule that holds decides, from what stops everything to what stops nothing:

| verdict | when | level |
|---|---|---|
| zookeeper_lost | for `connect_seconds` whoever looks has had no connection to ZooKeeper | critical |
| no_owner | no live host owns the partition, or none could take it | critical |
| host_unreachable | its owner does not answer | critical |
| no_listener | nobody is attached | warning |
| starting | its owner does not deliver it (yet) | warning |
| pulled | who is attached reads for itself, as a stream of Spark does | fine |
| paused | somebody paused the subscription | fine |
| listener_unreachable | as long there was none to the listener, or it does not say that it lives | critical |
| store_slow | a dead letter cannot be stored, or a read of the store takes longer than `slow_seconds` | warning |
| handler_stuck | a push, or a callback beyond its limit, takes longer than `stuck_seconds`, unmoved | critical |
| retrying | everything waits for a message that failed | warning |
| key_parked | keys wait for messages of theirs that failed | warning |
| window_full | more is there than the subscriber takes, for longer than `behind_seconds` | warning |
| waiting_for_transaction | for `behind_seconds` everything has waited for one that is in progress | warning |
| limited | as catching_up, and its own limits of messages or bytes per second hold it back | fine |
| stalled | as catching_up, and nothing has moved for `stuck_seconds`: no rule above knows why | critical |
| catching_up | what is not acknowledged is older than `behind_seconds` | fine |
| filter_starving | for `quiet_seconds` nothing of what was published was wanted | fine |
| idle | all is acknowledged, and for `quiet_seconds` nothing came | fine |
| healthy | all else | fine |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from delivery.dispatch.observation import Observation
from delivery.dispatch.sticking import stuck
from delivery.dispatch.wording import age, shrinks, span, times, why
from delivery.ids import MessageId
from delivery.transactions.pointers import began_ms

Name = Literal[
    "zookeeper_lost", "no_owner", "host_unreachable", "no_listener", "starting", "pulled", "paused",
    "listener_unreachable", "store_slow", "handler_stuck", "retrying", "key_parked", "window_full",
    "waiting_for_transaction", "limited", "stalled", "catching_up", "filter_starving", "idle", "healthy",
]  # fmt: skip
Level = Literal["fine", "warning", "critical"]

LEVELS: Final[dict[Name, Level]] = {
    "zookeeper_lost": "critical", "no_owner": "critical", "host_unreachable": "critical", "no_listener": "warning",
    "starting": "warning", "pulled": "fine", "paused": "fine", "listener_unreachable": "critical",
    "store_slow": "warning",
    "handler_stuck": "critical", "retrying": "warning", "key_parked": "warning", "window_full": "warning",
    "waiting_for_transaction": "warning", "limited": "fine", "stalled": "critical", "catching_up": "fine",
    "filter_starving": "fine", "idle": "fine", "healthy": "fine",
}  # fmt: skip
"""In the order of the rules."""
_WORSE: Final = ("fine", "warning", "critical")
_RANKS: Final = {name: (_WORSE.index(level), -at) for at, (name, level) in enumerate(LEVELS.items())}


class Limits(msgspec.Struct, frozen=True):
    """From when on something is worth a word."""

    stuck_seconds: float = 30.0
    """A push without an answer: longer than most callbacks take, and than a host needs to fail over."""
    slow_seconds: float = 5.0
    """A read of the store: a hundred times what a disk needs."""
    behind_seconds: float = 5.0
    """The age of what is not acknowledged."""
    quiet_seconds: float = 60.0
    """Without any delivery."""
    connect_seconds: float = 3.0
    """Without a connection: one that broke is mostly there again before."""


DEFAULTS: Final = Limits()


class Verdict(msgspec.Struct, frozen=True):
    """The reason for what a partition does, or does not do."""

    name: Name
    since_ms: int
    """When that began, by the observation's clock; 0 where nobody can tell."""
    text: str
    """What is the matter, and what to do next."""

    @property
    def level(self) -> Level:
        """How bad it is."""
        return LEVELS[self.name]

    @property
    def rank(self) -> tuple[int, int]:
        """The higher, the worse."""
        return _RANKS[self.name]


Found = tuple[int, str] | None
"""Since when, and the text."""


def verdict(seen: Observation, limits: Limits = DEFAULTS) -> Verdict:
    """The one verdict on a observation, at the time when that was taken."""
    for name, rule in _RULES:
        if (found := rule(seen, limits)) is not None:
            since_ms, text = found
            return Verdict(name, since_ms, f"member {seen.member}: {text}" if seen.member else text)
    return Verdict("healthy", 0, "messages are acknowledged as they come")


def _passed(seen: Observation, since_ms: int) -> float:
    return (seen.now_ms - since_ms) / 1000


def _zookeeper_lost(seen: Observation, limits: Limits) -> Found:
    since = seen.zookeeper_lost_ms
    if not since or _passed(seen, since) < limits.connect_seconds:
        return None
    return since, (
        f"no connection to ZooKeeper{why(seen.trouble)}: messages go on for a while, positions are saved when it is"
        " back; look after the ensemble"
    )


def _no_owner(seen: Observation, _: Limits) -> Found:
    if seen.stage != "no_owner":
        return None
    return seen.began_ms, (
        f"no live host owns the partition{why(seen.trouble)}: `hoot host list` shows who lives; start a host, or look"
        " at the hosts' logs"
    )


def _host_unreachable(seen: Observation, _: Limits) -> Found:
    if seen.stage != "host_unreachable":
        return None
    return 0, f"its owner {seen.host} does not answer{why(seen.trouble)}: look whether that host hangs or is cut off"


def _no_listener(seen: Observation, _: Limits) -> Found:
    return (0, "nobody is attached: start its subscriber") if seen.stage == "no_listener" else None


def _starting(seen: Observation, _: Limits) -> Found:
    if seen.stage != "starting":
        return None
    return seen.began_ms, (
        f"its owner {seen.host} has not begun to deliver it{why(seen.trouble)}: if that lasts, look at its log"
    )


def _pulled(seen: Observation, _: Limits) -> Found:
    if seen.stage != "pulled":
        return None
    return 0, (
        "who is attached, such as a stream of Spark, reads for itself, and has no handler that is called"
        f"{age(seen)}: see its own progress, if that lasts"
    )


def _paused(seen: Observation, _: Limits) -> Found:
    if not seen.paused_ms:
        return None
    until = f" for {span(-_passed(seen, seen.paused_until_ms))} more" if seen.paused_until_ms else ""
    by = f" by {seen.paused_by}" if seen.paused_by else ""
    return seen.paused_ms, f"the subscription is paused{by}{until}: resume it when it is time"


def _listener_unreachable(seen: Observation, limits: Limits) -> Found:
    since = seen.unreachable_ms
    if not since or _passed(seen, since) < limits.connect_seconds:
        return None
    return since, (
        f"its listener cannot be reached{why(seen.unreachable)}: see whether the subscriber lives, and whether the"
        " hosts reach the address that it registered"
    )


def _store_slow(seen: Observation, limits: Limits) -> Found:
    if seen.shelving_ms and _passed(seen, seen.shelving_ms) >= limits.slow_seconds:
        return seen.shelving_ms, (
            f"a message was given up and cannot be stored as a dead letter{why(seen.trouble)}: look at the queue of"
            " dead letters and its host"
        )
    if seen.reading_ms and _passed(seen, seen.reading_ms) >= limits.slow_seconds:
        return seen.reading_ms, (
            f"a read of the store takes {span(_passed(seen, seen.reading_ms))}: look at the disk, or HBase, of"
            f" {seen.host or 'its host'}"
        )
    return None


def _handler_stuck(seen: Observation, limits: Limits) -> Found:
    return stuck(seen, limits.stuck_seconds)


def _retrying(seen: Observation, _: Limits) -> Found:
    if not seen.failing:
        return None
    again = f" and comes again in {span(-_passed(seen, seen.again_ms))}" if seen.again_ms > seen.now_ms else ""
    return 0, (
        f"everything waits for message {MessageId(seen.failing)}, which failed {times(seen.failures)}{again}"
        f"{why(seen.error)}: mend the listener, let the policy give it up, or let only its key wait"
    )


def _key_parked(seen: Observation, _: Limits) -> Found:
    if not seen.parked:
        return None
    full = ", no more can be, so the whole partition waits" if seen.parking_full else ""
    return 0, (
        f"{seen.parked} messages of {seen.parked_keys} keys are parked{full}; one failed {times(seen.failures)}"
        f"{why(seen.error)}: mend the listener; `hoot subscription parked` lists, `release` repeats them"
    )


def _window_full(seen: Observation, limits: Limits) -> Found:
    slow = bool(seen.out_since_ms) and _passed(seen, seen.out_since_ms) >= limits.stuck_seconds
    if not slow and (not seen.full or seen.lag_seconds < limits.behind_seconds or shrinks(seen)):
        return None
    return seen.oldest_ms, (
        f"{seen.out} messages are out, and more come than the subscriber handles{age(seen)}: make its callbacks"
        " quicker, or its window larger"
    )


def _waiting_for_transaction(seen: Observation, limits: Limits) -> Found:
    since = seen.waiting_ms
    if not since or _passed(seen, since) < limits.behind_seconds:
        return None
    if not seen.waiting_for:
        return since, (
            f"no host tells which transactions are committed{why(seen.waiting_trouble)}: `hoot host list` shows who"
            " lives; look at the hosts' logs"
        )
    begun_ms = began_ms(seen.waiting_for)
    if begun_ms > seen.now_ms + limits.stuck_seconds * 1000:
        return since, (
            f"waiting for transaction {seen.waiting_for}, which nobody has begun: some program made it up; have `hoot"
            " subscription seek` pass its message"
        )
    return since, (
        f"waiting for transaction {seen.waiting_for}, which began {span(_passed(seen, begun_ms))} ago{age(seen)}: its"
        " program has to commit it or roll it back, else its timeout makes it invalid"
    )


def _limited(seen: Observation, limits: Limits) -> Found:
    if not seen.limited or seen.lag_seconds < limits.behind_seconds:
        return None
    return seen.oldest_ms, (
        f"its own limits of messages and bytes per second hold it back{age(seen)}: raise them (`hoot subscription"
        " update`), if it is not meant to be so slow"
    )


def _stalled(seen: Observation, limits: Limits) -> Found:
    since = max(seen.moved_ms, seen.delivered_ms, seen.began_ms)
    if seen.lag_seconds < limits.behind_seconds or _passed(seen, since) < limits.stuck_seconds:
        return None
    if seen.out or seen.paced:
        return None
    return since, (
        "messages wait, nothing moves, and the host does not know why: look at its log, `hoot partition move` begins"
        " anew on another host, and tell of it, for this is a fault in Hoot"
    )


def _catching_up(seen: Observation, limits: Limits) -> Found:
    if seen.lag_seconds < limits.behind_seconds:
        return None
    return seen.oldest_ms, f"it is behind and delivers{age(seen)}: wait"


def _filter_starving(seen: Observation, limits: Limits) -> Found:
    since = max(seen.delivered_ms, seen.began_ms)
    if not seen.filtered or seen.out or seen.scanned <= seen.heard or _passed(seen, since) < limits.quiet_seconds:
        return None
    return since, (
        "messages were published, and its topics and filter took none of them: if that is not meant, `hoot"
        " subscription explain` tells why"
    )


def _idle(seen: Observation, limits: Limits) -> Found:
    since = max(seen.delivered_ms, seen.began_ms)
    if seen.out or seen.position < seen.last or _passed(seen, since) < limits.quiet_seconds:
        return None
    return since, "everything is acknowledged, and nothing was published since"


_RULES: Final[tuple[tuple[Name, Callable[[Observation, Limits], Found]], ...]] = (
    ("zookeeper_lost", _zookeeper_lost), ("no_owner", _no_owner), ("host_unreachable", _host_unreachable),
    ("no_listener", _no_listener), ("starting", _starting), ("pulled", _pulled), ("paused", _paused),
    ("listener_unreachable", _listener_unreachable), ("store_slow", _store_slow), ("handler_stuck", _handler_stuck),
    ("retrying", _retrying), ("key_parked", _key_parked), ("window_full", _window_full),
    ("waiting_for_transaction", _waiting_for_transaction), ("limited", _limited), ("stalled", _stalled),
    ("catching_up", _catching_up), ("filter_starving", _filter_starving), ("idle", _idle),
)  # fmt: skip
