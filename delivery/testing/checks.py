"""What a test asks an engine, and claims: each claim that fails says what happened instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from delivery.client.client import Client
from delivery.client.deadletters import StoredLetter
from delivery.errors import UnknownSubscription
from delivery.metastore.managers.records import ParkedKey
from delivery.model import Message
from delivery.testing.history import Delivery, History

Bodies = Sequence[bytes]


class Checks:
    """Over what an engine has seen."""

    def __init__(self, history: History, connect: Callable[[], Client]) -> None:
        self._told = history
        self._asking = connect()

    def happened(self, queue: str, subscription: str) -> list[Delivery]:
        """All deliveries to a subscription, whatever came of them, in order.

        Raises UnknownQueue and UnknownSubscription where there were none and it is not there: a name may be misspelt.
        """
        found = self._told.of(queue, subscription)
        if not found:
            self._check_known(queue, subscription)
        return found

    def delivered(self, queue: str, subscription: str) -> list[Message]:
        """The messages that its listeners handled, in order."""
        return [one.message for one in self.happened(queue, subscription) if one.what == "handled"]

    def retried(self, queue: str, subscription: str) -> list[Delivery]:
        """The deliveries that failed, or were asked for again: not those that a listener rejected."""
        return [one for one in self.happened(queue, subscription) if one.what not in ("handled", "rejected")]

    def dead_lettered(self, queue: str, subscription: str) -> list[StoredLetter]:
        """The dead letters that it has now; `stored` has the message, `told("reason")` why."""
        return self._asking.dead_letters(queue, subscription).letters()

    def parked(self, queue: str, subscription: str) -> list[ParkedKey]:
        """The keys that wait for a message that was not handled."""
        return [one for _, one in self._asking.parked(queue, subscription)]

    def waiting(self, queue: str, subscription: str) -> int:
        """How many messages it has not come to yet; those behind a failure are among them, parked ones are not."""
        lag = self._asking.subscription_info(queue, subscription).lag
        assert lag is not None, "all is known here"
        return lag

    # -- claims

    def assert_delivered(self, queue: str, subscription: str, bodies: Bodies) -> None:
        """These messages were handled, each once, in this order, and no others."""
        got = [message.body for message in self.delivered(queue, subscription)]
        if got != list(bodies):
            self._fail(queue, subscription, f"{list(bodies)} were to be handled, and {got} were")

    def assert_retried(self, queue: str, subscription: str, body: bytes, times: int | None = None) -> None:
        """The message failed so often, or at least once."""
        got = sum(one.message.body == body for one in self.retried(queue, subscription))
        if got != times if times is not None else not got:
            wanted = "at least once" if times is None else f"{times} times"
            self._fail(queue, subscription, f"{body!r} was to fail {wanted}, and did {got} times")

    def assert_dead_lettered(
        self, queue: str, subscription: str, bodies: Bodies, *, reason: str | None = None
    ) -> None:  # fmt: skip
        """These messages are its dead letters, in this order, and no others; with `reason` in the reason of each."""
        letters = self.dead_lettered(queue, subscription)
        got = [letter.stored.body for letter in letters]
        if got != list(bodies):
            self._fail(queue, subscription, f"{list(bodies)} were to become dead letters, and {got} are")
        for letter in letters if reason is not None else ():
            told = f"{letter.told('reason')}: {letter.told('last-error')}"
            if reason is not None and reason not in told:
                self._fail(queue, subscription, f"{letter.stored.body!r} is a dead letter for {told!r}, not {reason!r}")

    def assert_idle(self, queue: str, subscription: str) -> None:
        """Nothing waits: everything that was published is handled or given up."""
        waiting, parked = self.waiting(queue, subscription), self.parked(queue, subscription)
        if waiting or parked:
            keys = f" and {len(parked)} keys are parked" if parked else ""
            self._fail(queue, subscription, f"nothing was to wait, but {waiting} messages do{keys}")

    def _fail(self, queue: str, subscription: str, what: str) -> None:
        self._check_known(queue, subscription)
        raise AssertionError(f"{queue} → {subscription}: {what}; {self._told.told(queue, subscription)}")

    def _check_known(self, queue: str, subscription: str) -> None:
        if subscription not in self._asking.subscriptions(queue):
            raise UnknownSubscription(f"queue {queue!r} has no subscription {subscription!r}: was it started?")
