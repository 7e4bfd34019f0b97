"""Subscriptions to all queues whose names match a pattern: which queues these are, now and later.

For each queue there is a subscription of its own, with its own checkpoints; they share the listeners. A queue that
comes while the subscriber runs is taken from its first message on: nothing of it is missed, however late it is seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import msgspec
import trio

from delivery import hop, logs
from delivery.errors import HootError
from delivery.ids import EARLIEST
from delivery.metastore.copies import COMPACTING
from delivery.metastore.policy import DEAD_LETTERS
from delivery.metastore.records import QueueRecord
from delivery.metastore.replays import REPLAYS
from subscriber.subscription import Subscription, is_pattern

LOOK_SECONDS: Final = 2.0
"""Between two looks at the list of queues: how late a new one is noticed. A look reads what matches, and no more."""

log = logs.logger(__name__)

Matching = Callable[[str], list[QueueRecord]]
"""The queues that match a pattern now; blocking."""
Register = Callable[[Sequence[Subscription]], Awaitable[None]]
"""Registers subscriptions, all checked before the first is written."""


class Patterns:
    """The patterns of one started subscriber, each as the Subscription that the application has. On the trio thread."""

    def __init__(self, matching: Matching, attached: Collection[str], register: Register) -> None:
        """`attached` are the queues that the subscriber gets, by whichever way, at any time."""
        self._matching, self._attached, self._register = matching, attached, register
        self._wholes: dict[str, Subscription] = {}
        self._seen: dict[str, str] = {}
        """The queues that a pattern was found to match, with their generations."""
        self._reported: set[str] = set()

    def __bool__(self) -> bool:
        """Whether queues may come."""
        return bool(self._wholes)

    async def begin(self, subscriptions: Sequence[Subscription]) -> None:
        """Register subscriptions: to queues, and to all that match patterns now. Raises as registering does."""
        wholes = [one for one in subscriptions if is_pattern(one.queue)]
        wanted = {one.queue: one for one in subscriptions if not is_pattern(one.queue)}
        for whole in wholes:
            wanted |= {one.queue: one for one in await self._find(whole, [*wanted, *self._attached])}
        try:
            await self._register(list(wanted.values()))
        except BaseException:
            for whole in wholes:
                self._forget(whole)
            raise
        for whole in wholes:
            self._wholes[whole.queue] = whole
            whole.state = "attached"

    async def run(self, changing: trio.Lock) -> None:
        """Subscribe to queues that come, until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            async with changing:
                for whole in list(self._wholes.values()):
                    try:
                        found = await self._find(whole, self._attached, start=EARLIEST)
                    except HootError as error:
                        self._report(whole, error)
                        continue
                    for part in found:
                        await self._join(whole, part)

    def queues(self, queue: str) -> list[str]:
        """The queues that a pattern was found to match; the queue itself when it is none."""
        whole = self._wholes.get(queue)
        return [queue] if whole is None else list(whole.parts)

    def remove(self, queue: str) -> None:
        """Forget a pattern, if it is one."""
        if (whole := self._wholes.pop(queue, None)) is not None:
            whole.state = "deleted"
            self._forget(whole)

    def stop(self) -> None:
        """The subscriber has stopped."""
        for whole in self._wholes.values():
            whole.state = "stopped"

    async def _join(self, whole: Subscription, part: Subscription) -> None:
        """Register a new queue; one that cannot be is found again at the next look."""
        try:
            await self._register([part])
        except HootError as error:
            del whole.parts[part.queue], self._seen[part.queue]
            self._report(part, error)

    def _report(self, subscription: Subscription, error: HootError) -> None:
        if error.message not in self._reported:
            log.warning("subscription %s on %s: %s", subscription.name, subscription.queue, error)
            self._reported.add(error.message)

    async def _find(
        self, whole: Subscription, taken: Collection[str], start: int | None = None
    ) -> list[Subscription]:  # fmt: skip
        """Subscriptions, still to be registered, to the queues that match and are new.

        One whose subscription was deleted, or taken over, is not subscribed to again, unless the queue was made anew.
        """
        found: list[Subscription] = []
        for queue in await hop.run_sync(self._matching, whole.queue):
            known = queue.name in taken or self._seen.get(queue.name) == queue.generation
            if not known and not _is_own(queue.name, whole.queue):
                request = msgspec.structs.replace(
                    whole.request, queue=queue.name, start=whole.request.start if start is None else start
                )
                part = Subscription(
                    whole.name, request, whole.listeners, whole.where, manual=whole.manual,
                    concurrency=whole.concurrency,
                )  # fmt: skip
                whole.parts[queue.name] = part
                part.delivering = whole.delivering
                self._seen[queue.name] = queue.generation
                found.append(part)
        return found

    def _forget(self, whole: Subscription) -> None:
        for queue in list(whole.parts):
            del whole.parts[queue], self._seen[queue]


def _is_own(queue: str, pattern: str) -> bool:
    """Whether a queue is there for a subscription or a job, by the end of its name, which the pattern does not say."""
    return any(queue.endswith(end) and not pattern.endswith(end) for end in (DEAD_LETTERS, REPLAYS, COMPACTING))
