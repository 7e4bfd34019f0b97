"""What is replayed to a subscription: it lies in a queue of its own, which the same listeners hear.

`hoot spark replay --to-subscription` makes that queue, `<queue>.<subscription>.replay`, and a subscription of the same
name to it, and notes in the preferences when it did. Whoever is attached to the subscription reads these twice a minute
anyway, and attaches to the other one, too: nothing has to be watched for what hardly ever comes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import trio

from delivery import logs
from delivery.errors import HootError
from delivery.filters import KEEP
from delivery.metastore.replays import replay_queue
from delivery.metastore.request import check_request
from subscriber.attachment import Attachment
from subscriber.patterns import Register
from subscriber.subscription import Subscription

LOOK_SECONDS: Final = 2.0
"""Between two looks at what is known of the preferences. A look asks nobody."""
AGAIN_SECONDS: Final = 30.0
"""Until it is tried again what could not be."""

log = logs.logger(__name__)


class Due:
    """Which subscriptions have replays that their listeners do not hear yet. Plain; `now` is in seconds."""

    def __init__(self) -> None:
        self._made: dict[str, int] = {}
        """Of each queue for which it was tried last, when the subscription of its replays was made."""
        self._after: dict[str, float] = {}
        """When it is tried again, if it failed."""

    def of(self, queue: str, made_ms: int, now: float) -> bool:
        """Whether to attach to the replays of a queue's subscription, made at that time, 0 for none; once for each."""
        if not made_ms or (self._made.get(queue) == made_ms and now < self._after.get(queue, math.inf)):
            return False
        self._made[queue] = made_ms
        self._after.pop(queue, None)
        return True

    def failed(self, queue: str, now: float) -> None:
        """It could not be done: once more, later."""
        self._after[queue] = now + AGAIN_SECONDS


class Replays:
    """Of all subscriptions of one started subscriber. On the trio thread; `run` owns the looking."""

    def __init__(
        self, attached: Mapping[str, Attachment], register: Register, clock: Callable[[], float] = trio.current_time
    ) -> None:
        """`attached` is by queue, as it is at any time."""
        self._attached, self._register, self._clock = attached, register, clock
        self._due = Due()
        self._own: set[str] = set()
        """The queues of replays."""

    def are_all(self) -> bool:
        """Whether nothing is attached beside replays."""
        return self._own.issuperset(self._attached)

    def of(self, attachment: Attachment) -> list[Attachment]:
        """What is attached here of the replays of a subscription, which are deleted along with it."""
        return [self._attached[queue] for queue in attachment.subscription.parts if queue in self._attached]

    async def run(self, changing: trio.Lock) -> None:
        """Attach to replays that come, until cancelled."""
        while True:
            for queue, attachment in list(self._attached.items()):
                if queue not in self._own and self._due.of(queue, attachment.record.replayed_ms, self._clock()):
                    async with changing:
                        await self._join(attachment.subscription)
            await trio.sleep(LOOK_SECONDS)

    async def _join(self, whole: Subscription) -> None:
        queue = replay_queue(whole.queue, whole.name)
        if whole.queue not in self._attached:
            return
        if queue in self._attached:  # an earlier one that has not ended yet, or the application's own
            self._due.failed(whole.queue, self._clock())
            return
        request = check_request(queue, None, KEEP, "earliest", mode="attach")
        part = Subscription(
            whole.name, request, whole.listeners, whole.where, manual=whole.manual, concurrency=whole.concurrency
        )  # fmt: skip
        part.delivering = whole.delivering
        whole.parts[queue] = part
        try:
            await self._register([part])
        except HootError as error:
            del whole.parts[queue]
            self._due.failed(whole.queue, self._clock())
            log.warning("subscription %s on %s: its replays in %s cannot be heard yet: %s", whole.name, whole.queue,
                        queue, error)  # fmt: skip
        else:
            self._own.add(queue)
