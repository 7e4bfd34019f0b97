"""What a Client says and changes of subscriptions, whoever is attached to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from delivery.client.admin import Admin
from delivery.client.explaining import Explained
from delivery.client.filtering import change
from delivery.client.looking import SubscriptionInfo
from delivery.client.positions import Move
from delivery.client.replays import Stretch
from delivery.dispatch.verdict import DEFAULTS, Limits
from delivery.filters import KEEP, FilterGiven, TopicsGiven
from delivery.ids import Start
from delivery.metastore.flow import FlowGiven
from delivery.metastore.groups import Kind
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.managers.snapshots import Snapshot
from delivery.metastore.policy import RetryGiven
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.replays import Speed
from delivery.metastore.request import Partitions, check_request
from delivery.model import Isolation


class SubscriptionsFace(ABC):
    """The part of Client that is about subscriptions."""

    @abstractmethod
    def _open(self) -> Admin:
        """Raises Closed."""

    @abstractmethod
    def _committed(self) -> bytes:
        """What of transactions is committed now."""

    def subscriptions(self, queue: str) -> list[str]:
        """The names of a queue's subscriptions, attached or not, sorted. Raises UnknownQueue."""
        return self._open().subscriptions(queue)

    def subscription_info(self, queue: str, name: str, limits: Limits = DEFAULTS) -> SubscriptionInfo:
        """How far a subscription has got, who is attached, and per partition a verdict (docs/verdicts.md).

        `limits` say from when on something is worth a word. Takes some seconds when a host or the subscriber does not
        answer. Raises UnknownQueue, UnknownSubscription.
        """
        return self._open().subscription_info(queue, name, limits)

    def subscription_infos(
        self, queue: str | None = None, name: str | None = None, *, limits: Limits = DEFAULTS
    ) -> list[SubscriptionInfo]:  # fmt: skip
        """`subscription_info` of many at a time: all, or those of one queue, or of one name. Raises UnknownQueue."""
        return self._open().subscription_infos(queue, name, limits)

    def seek(
        self, queue: str, name: str, to: Start, *, partitions: Iterable[int] | None = None, force: bool = False,
        dry_run: bool = False,
    ) -> list[Move]:  # fmt: skip
        """Move a subscription to another place, in all its partitions or in `partitions`; gives the moves.

        Backwards, its listeners hear messages again; forwards, those in between are skipped. A time or an id beyond a
        partition's end means its end, and a time before the first message means that. `force` moves it while a
        subscriber is attached, which goes on at the new place; what is in its callbacks at that moment is still
        handled. What is parked is forgotten (docs/retries.md). `dry_run` changes nothing.

        Raises UnknownQueue, UnknownSubscription, UnknownPartition, InvalidRequest for an id behind the last message of
        all partitions or before the first, and for a time to come, SubscriptionBusy. Nothing has changed then. Say it
        again after MetadataUnavailable.
        """
        return self._open().seek(queue, name, to, partitions, force=force, dry_run=dry_run)

    def create_snapshot(self, queue: str, name: str, snapshot: str, *, dry_run: bool = False) -> Snapshot:
        """Keep where a subscription stands under a name, with what is parked; gives that, as it was saved last.

        It is durable, and gone with the subscription; `dry_run` keeps nothing. Raises SnapshotExists, UnknownQueue,
        UnknownSubscription; InvalidRequest for the name, and beyond 32 snapshots or 512 KiB of them.
        """
        return self._open().snapshots.create(queue, name, snapshot, dry_run=dry_run)

    def snapshots(self, queue: str, name: str) -> dict[str, Snapshot]:
        """A subscription's snapshots by name, the oldest first. Raises UnknownQueue, UnknownSubscription."""
        return self._open().snapshots.all(queue, name)

    def snapshot(self, queue: str, name: str, snapshot: str) -> Snapshot:
        """One of a subscription's snapshots. Raises UnknownSnapshot, and as `snapshots`."""
        return self._open().snapshots.one(queue, name, snapshot)

    def restore_snapshot(
        self, queue: str, name: str, snapshot: str, *, force: bool = False, dry_run: bool = False
    ) -> list[Move]:
        """Move a subscription to where it stood; gives the moves. As `seek`, but what was parked then is so again.

        Partitions that were not subscribed to at that time stay where they are. Raises UnknownSnapshot, and as `seek`.
        """
        return self._open().snapshots.restore(queue, name, snapshot, force=force, dry_run=dry_run)

    def delete_snapshot(self, queue: str, name: str, snapshot: str) -> None:
        """Forget a snapshot. Raises UnknownSnapshot, UnknownQueue, UnknownSubscription."""
        self._open().snapshots.delete(queue, name, snapshot)

    def replay(
        self, queue: str, name: str, into: str, *, start: Start, end: Start = "latest", speed: Speed = "original",
        filter: FilterGiven = KEEP, dry_run: bool = False,
    ) -> list[Stretch]:  # fmt: skip
        """Make the subscription `into`, which delivers what lies between two places of the queue again, and then ends.

        It is a shadow of the subscription `name`, with its partitions, topics and retry policy, and its filter unless
        another is given; `name` itself goes on untouched. The messages from `start` on and before `end` come at
        `speed`: "original" for that of their publishing, how many times that, or "max". `dry_run` makes nothing.

        Raises SubscriptionExists, UnknownQueue, UnknownSubscription; InvalidRequest when no message lies in between;
        NoHost and HostUnreachable when a partition cannot be asked.
        """
        return self._open().replays.replay(
            queue, name, into, start=start, end=end, speed=speed, filter_=filter, dry_run=dry_run
        )

    def promote(self, queue: str, shadow: str, *, force: bool = False, dry_run: bool = False) -> tuple[str, list[Move]]:
        """Put the subscription that `shadow` is a replay of to where that stands, and delete `shadow`.

        Gives the name of that subscription, and its moves; what is parked of `shadow` is parked of it then. `force`
        does it also while a subscriber is attached to one of them: that of `shadow` is detached for good. When it
        breaks off, say it again.

        Raises InvalidRequest when `shadow` is no replay, UnknownSubscription when one of the two is not there,
        SubscriptionBusy; nothing has changed then.
        """
        return self._open().replays.promote(queue, shadow, force=force, dry_run=dry_run)

    def create_subscription(
        self, queue: str, name: str, *, partitions: Partitions = None, topics: TopicsGiven = None,
        filter: FilterGiven = None, start: Start | Mapping[int, Start] = "latest", retry: RetryGiven = None,
        kind: Kind = "exclusive", bound: int = 0, flow: FlowGiven = KEEP, isolation: Isolation = "uncommitted",
    ) -> SubscriptionRecord:  # fmt: skip
        """Create a subscription to which nobody is attached yet: what is published from its start on waits for them.

        `partitions`, `topics`, `filter`, `start`, `retry`, `kind`, `bound`, `flow` and `isolation` as in
        Subscriber.subscribe.
        Raises SubscriptionExists, UnknownQueue, UnknownPartition, InvalidRequest; NoHost and HostUnreachable when a
        start has to be asked for; BadVersion when the queue is deleted and made again at that moment.
        """
        request = check_request(
            queue, partitions, topics, start, filter, retry=retry, kind=kind, bound=bound, flow=flow,
            isolation=isolation,
        )  # fmt: skip
        return self._open().create_subscription(name, request)

    def update_subscription(
        self, queue: str, name: str, *,
        topics: TopicsGiven = KEEP, filter: FilterGiven = KEEP, retry: RetryGiven = None, bound: int | None = None,
        flow: FlowGiven = KEEP, kind: Kind | None = None, isolation: Isolation | None = None, dry_run: bool = False,
    ) -> SubscriptionRecord:  # fmt: skip
        """Change what a subscription takes and how fast, attached or not; its workers follow at once.

        `topics` are names and patterns, `filter` an expression or a rule (docs/filters.md); None takes one away, what
        is left out stays. `retry` is a policy, or a mapping of those of its fields that are to change (None in it: the
        default); an attached subscriber hears of another `order` or `timeout_seconds` within half a minute. `bound` and
        `isolation` as in Subscriber.subscribe. `flow` is a Flow, or a mapping of those of its fields that are to change
        (docs/flow.md). What is out at that moment may still be handled under the old preferences. `kind`
        (docs/groups.md) can be changed only while nobody is attached. Gives them as they are then; `dry_run` changes
        nothing.

        Raises InvalidRequest (where it does not parse, and what to write), UnknownQueue, UnknownSubscription, and
        SubscriptionBusy for another kind while somebody is attached.
        """
        wanted = change(topics, filter, retry, bound, flow, kind, isolation=isolation)
        return self._open().update_subscription(queue, name, wanted, dry_run=dry_run)

    def pause(
        self, queue: str, name: str, *, until: datetime | None = None, seconds: float | None = None
    ) -> SubscriptionRecord:  # fmt: skip
        """Deliver nothing more to a subscription, attached or not: until that time, for so long, or until `resume`.

        It counts for every host, now and later, and replaces an earlier pause. What is out then is still handled and
        acknowledged. Returns when the hosts that deliver hold to it, and after three seconds at the latest: a host that
        could not be asked will, as soon as it hears of it. Gives the preferences as they are then. Raises
        InvalidRequest for an end that is not in the future, UnknownQueue, UnknownSubscription.
        """
        return self._open().pausing.pause(queue, name, until, seconds)

    def resume(self, queue: str, name: str) -> SubscriptionRecord:
        """End a pause; fine without one. Raises UnknownQueue, UnknownSubscription."""
        return self._open().pausing.resume(queue, name)

    def explain(self, queue: str, name: str, message: int, partition: int | None = None) -> list[Explained]:
        """Why a subscription takes the message with this id, or does not: one answer for each partition that holds it.

        Dead letters are looked through, too, for some ten seconds at most (`letters_until`); one whose message is
        stored no more is an answer as well.
        Raises UnknownQueue, UnknownSubscription, UnknownPartition; InvalidRequest when no partition holds the message;
        CorruptRecord for a message that is damaged.
        """
        return self._open().explain(queue, name, message, partition, self._committed)

    def delete_subscription(self, queue: str, name: str) -> None:
        """Delete a subscription with its checkpoints; its workers stop. Raises UnknownQueue, UnknownSubscription."""
        self._open().delete_subscription(queue, name)

    def parked(self, queue: str, subscription: str) -> list[tuple[int, ParkedKey]]:
        """The keys of a subscription that wait, with their partitions, as they are saved: a moment after it happened.

        Raises UnknownQueue, UnknownSubscription.
        """
        return self._open().parked(queue, subscription)

    def release(self, queue: str, subscription: str, keys: Collection[bytes] | None = None) -> int:
        """Have these parked keys, or all that is parked, come again now; gives how many.

        Raises as `parked`, and InvalidRequest for what are no keys.
        """
        return self._open().release(queue, subscription, keys)
