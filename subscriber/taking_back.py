"""What it means for pushes that a message which a listener got is taken back: a plain decision.

Somebody was to acknowledge it by hand, and did not do so in time, or gave it back. It has failed then, as if its
listener had raised. What had to wait for it is taken back, too: with `order="key"` what is not acknowledged of its key,
else everything that is not acknowledged behind it. All of that comes again, in order; what was acknowledged does not.

By then later pushes may have been answered. The host takes a failure behind such answers, as long as the push that it
is about is the first one without an answer: so that one is given in order, and nothing is told of what was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from subscriber.failures import unhandled
from subscriber.holding import HELD, Unhandled
from subscriber.inbox import PartitionInbox, Status
from subscriber.manual import Kept, State, Taken, Unacknowledged
from subscriber.outcomes import Retry
from subscriber.pushes import Push, last_id_of

Answer = Callable[[Status, int, Sequence[Unhandled]], Any]
"""Makes a PushReply."""


class TakenBack(msgspec.Struct, frozen=True):
    """A message that has failed, and why."""

    push: Push
    unhandled: Unhandled
    error: Exception


class TakingBack:
    """Decides for one partition, in the turn of its pushes, and with the lock of what is not acknowledged."""

    def __init__(
        self, unacknowledged: Unacknowledged, inbox: PartitionInbox, answer: Answer, *, by_key: bool
    ) -> None:  # fmt: skip
        self._unacknowledged, self._inbox, self._answer, self._by_key = unacknowledged, inbox, answer, by_key

    def take_back(self, lapsed: Iterable[Taken], limit: float) -> list[TakenBack]:
        """Take back what is `lapsed`, in the order of ids, and give the answers that wait for nothing more."""
        found: list[TakenBack] = []
        for taken in lapsed:
            if self._unacknowledged.open.get(taken.number) is not taken:
                continue  # it had to wait for one before it
            if not (answers := self._told(taken)):
                self._unacknowledged.take_back([taken])  # the position was moved since: it comes again, or is passed
                continue
            error = _error(taken, limit)
            failure = unhandled(taken.number, taken.key, error)
            push = answers[0].push
            assert push is not None
            if any(one.again for one in answers) or (self._by_key and not self._inbox.holding.is_full):
                self._park(taken, failure)
            else:
                self._end_run(taken, failure)
            found.append(TakenBack(push, failure, error))
        self._unacknowledged.give()
        return found

    def _told(self, taken: Taken) -> list[Kept]:
        """The answers by which the host can be told of it."""
        return [one for one in taken.answers if one.push is not None and one.beginning == self._inbox.beginning]

    def _behind(self, taken: Taken) -> list[Taken]:
        open_now = self._unacknowledged.open.values()
        return [one for one in open_now if one.number > taken.number and self._told(one)]

    def _park(self, taken: Taken, failure: Unhandled) -> None:
        """The run goes on, without its key."""
        behind = [one for one in self._behind(taken) if one.key is not None and one.key == taken.key]
        self._inbox.holding.hold(failure)
        self._hold(behind)
        self._close([taken, *behind])

    def _end_run(self, taken: Taken, failure: Unhandled) -> None:
        """Everything behind it waits."""
        inbox, first = self._inbox, taken.number
        behind = self._behind(taken)
        repeated = [one for one in behind if any(kept.again for kept in one.answers)]  # which are parked
        self._hold(repeated)
        kept = [one for one in self._unacknowledged.answers if one.turn == inbox.turn and not (one.given or one.again)]
        own = next((at for at, one in enumerate(kept) if one in taken.answers), None)
        recalled = [taken, *(one for one in behind if one not in repeated)]
        inbox.recall(first, (one.number for one in recalled), fails=own is not None)
        self._close([taken, *behind])
        if own is None:
            return  # the host repeats it in a turn of which its push has not come yet
        kept[own].reply = self._failed(kept[own], failure)
        for one in kept[own + 1 :]:
            assert one.push is not None
            one.in_order, one.reply = True, self._answer(Status.SKIPPED, one.push.after, ())

    def _failed(self, kept: Kept, failure: Unhandled) -> Any:  # noqa: ANN401 - a PushReply
        assert kept.push is not None
        handled = failure.id - 1
        held = self._inbox.holding.between(kept.push.after, handled)
        return self._answer(Status.FAILED, handled, [*held, failure])

    def _hold(self, messages: Iterable[Taken]) -> None:
        for one in messages:
            self._inbox.holding.hold(Unhandled(one.number, one.key, HELD))

    def _close(self, messages: Sequence[Taken]) -> None:
        """Nobody can acknowledge these any more, and the answers that waited for them say what is held now."""
        told: dict[Kept, list[int]] = {}
        for taken in messages:
            for kept in taken.answers:
                told.setdefault(kept, []).append(taken.number)
        for kept in told:
            kept.in_order = True
        self._unacknowledged.take_back(messages)
        for kept, numbers in told.items():
            self._tell(kept, numbers)

    def _tell(self, kept: Kept, numbers: Sequence[int]) -> None:
        push, reply, holding = kept.push, kept.reply, self._inbox.holding
        if push is None or reply.status not in (Status.OK, Status.FAILED):
            return
        if kept.again:
            held = [one for number in numbers for one in holding.between(number - 1, number)]
            before = list(reply.failures or ())
            kept.reply = self._answer(Status.OK, push.after, held)
            kept.reply.failures = [*before, *(kept.reply.failures or ())]
        elif reply.status == Status.OK:
            kept.reply = self._answer(Status.OK, reply.position, holding.between(push.after, last_id_of(push)))
        else:
            last = reply.failures[-1]
            kept.reply = self._answer(Status.FAILED, reply.position, holding.between(push.after, last.id - 1))
            kept.reply.failures = [*(kept.reply.failures or ()), last]


def _error(taken: Taken, limit: float) -> Exception:
    if taken.state is State.REFUSED:
        return taken.why or Retry(reason="it was given back")
    return TimeoutError(f"it was not acknowledged within {limit:g} s")
