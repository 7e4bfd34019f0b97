"""The Listener service of idl/subscriber.thrift: what a region host's calls do here.

    push → `begin` on the trio thread, in order of arrival: known here? stale?
         → `_handle` on the dispatch thread: the inbox, decoding, the listeners
         → back to the trio thread: the reply, in order

Whatever goes wrong with a push is an answer to it; nothing is skipped in silence.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from delivery.errors import InvalidRequest, ServiceStopping
from delivery.ids import MessageId
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.model import Message
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call, load_idl
from subscriber.dispatch import Dispatcher
from subscriber.effects import check_effects
from subscriber.holding import RAISED, REJECTED, RETRY, UNREADABLE, Holding, Unhandled
from subscriber.inbox import Inbox, PartitionInbox, Status
from subscriber.keyed import call_again, call_by_key
from subscriber.listeners import Abandoned, Calls, ListenerFailed
from subscriber.manual import ManualMessage, Unacknowledged, by_hand
from subscriber.outcomes import Outcome, Reject, Retry
from subscriber.pushes import Push, batches, last_id_of, pieces
from subscriber.subscription import Event, Subscription

log = logging.getLogger(__name__)

_ERROR_TEXT_MAX = 1000
_STOPPING = ServiceStopping("the subscriber stops")


class Attachment:
    """A subscription that is registered by this subscriber, and may get pushes."""

    def __init__(self, subscription: Subscription, record: SubscriptionRecord, listener: ListenerRecord) -> None:
        self.subscription, self.listener = subscription, listener
        self.record = record
        """As it was read last: an operator may change it meanwhile."""
        self.inbox = Inbox(record.starts)
        self.ended = False
        """No listener is called for it any more."""
        self.waiting: deque[Callable[[], None]] = deque()
        """Pushes that came while the application wanted none; for the dispatch thread."""
        self.unacknowledged: dict[int, Unacknowledged] = {}
        """By partition, when the application acknowledges by hand."""
        self._made_for = (subscription.listeners, record.retry)
        self._calls: Calls | None = None

    def calls(self, dispatcher: Dispatcher) -> Calls:
        """The listeners as they stand now."""
        listeners, retry = self.subscription.listeners, self.record.retry
        if self._calls is None or listeners is not self._made_for[0] or retry is not self._made_for[1]:
            check_effects(listeners, self.record, manual=self.subscription.manual)
            given = [by_hand(one, self._deliver) for one in listeners] if self.subscription.manual else listeners
            self._calls = Calls(given, dispatcher.hop, self.subscription.where, retry.timeout_seconds)
            self._made_for = (listeners, retry)
        return self._calls

    def _deliver(self, message: Message) -> ManualMessage:
        return self.unacknowledged[message.partition].deliver(message)


class Reply(Protocol):
    """A PushReply of the IDL."""

    status: int
    position: int
    failures: Sequence[Any] | None


class Counters(msgspec.Struct):
    """What happened since the start. Written by the dispatch thread; may be read at any time."""

    pushes: int = 0
    failed: int = 0
    skipped: int = 0
    stale: int = 0


class ListenerService:
    """Handles the calls of all region hosts. `attached` is by queue, and changed on the trio thread alone."""

    def __init__(self, name: str, dispatcher: Dispatcher, on_event: Callable[[Event], None]) -> None:
        """`on_event` hears, on the dispatch thread, of pushes that could not be handled and partitions that moved."""
        self._name, self._dispatcher, self._on_event = name, dispatcher, on_event
        self._idl = load_idl("subscriber")
        self.attached: dict[str, Attachment] = {}
        self.counters = Counters()
        self.stopping = False
        """Set to answer all pushes that are not begun yet with ServiceStopping."""

    def begin(self, call: Call) -> Promise[object]:
        """Take a call (see delivery.rpc.server.Handler)."""
        if call.method == "hello":
            return _ready(self._hello(call.args.queue, call.args.subscription))
        push: Push | None = call.args.push
        if push is None or None in (push.queue, push.partition, push.epoch, push.run, push.after, push.batches):
            raise InvalidRequest("a push lacks one of its fields")
        attachment = self.attached.get(push.queue) if push.subscription == self._name else None
        if attachment is None:
            return _ready(self._answer(Status.UNKNOWN, push.after))
        inbox = attachment.inbox.arrive(push.partition, (push.epoch, push.run))
        if isinstance(inbox, Status):
            return _ready(self._answer(inbox, push.after))
        answer: Promise[object] = Promise()
        job = partial(self._do, attachment, inbox, push, answer)
        self._dispatcher.submit(partial(self._dispatch, attachment, job))
        return answer

    def resume(self, attachment: Attachment) -> None:
        """Go on with pushes that wait, if they are wanted now or the attachment is over; from any thread."""
        self._dispatcher.submit(partial(self._resume, attachment))

    def _hello(self, queue: str, subscription: str) -> str:
        attachment = self.attached.get(queue) if subscription == self._name else None
        return "" if attachment is None else attachment.listener.token

    # -- on the dispatch thread

    def _dispatch(self, attachment: Attachment, job: Callable[[], None]) -> None:
        """Do the job of a push now, or when the application wants it; in order of arrival."""
        wanted = attachment.subscription.delivering and not attachment.waiting
        if wanted or self._is_over(attachment):
            job()
        else:
            attachment.waiting.append(job)

    def _resume(self, attachment: Attachment) -> None:
        waiting = attachment.waiting
        while waiting and (attachment.subscription.delivering or self._is_over(attachment)):
            waiting.popleft()()
        if self._is_over(attachment):
            for unacknowledged in attachment.unacknowledged.values():
                unacknowledged.end()

    def _is_over(self, attachment: Attachment) -> bool:
        """Whether pushes are answered without calling anybody."""
        return self.stopping or attachment.ended

    def _do(self, attachment: Attachment, inbox: PartitionInbox, push: Push, answer: Promise[object]) -> None:
        result: Any
        if self.stopping:
            result = _STOPPING
        elif attachment.ended:
            result = self._answer(Status.UNKNOWN, push.after)
        else:
            if attachment.subscription.manual:
                attachment.unacknowledged.setdefault(push.partition, Unacknowledged())
            try:
                result = self._handle(attachment, inbox, push)
            except Abandoned:
                return  # the loop has ended, nobody waits
            if attachment.subscription.manual and result.status in (Status.OK, Status.FAILED):
                self._give_when_acknowledged(attachment, inbox, push, result, answer)
                return
        self._dispatcher.post(partial(answer.give, result))

    def _give_when_acknowledged(
        self, attachment: Attachment, inbox: PartitionInbox, push: Push, reply: Reply, answer: Promise[object]
    ) -> None:
        unacknowledged, last_id = attachment.unacknowledged[push.partition], last_id_of(push)

        def give(acknowledged: bool) -> None:
            self._dispatcher.post(partial(answer.give, reply if acknowledged else _STOPPING))

        for failure in reply.failures or ():
            unacknowledged.forget_within(failure.id, failure.last)
        if push.again:
            unacknowledged.answer(give, {message.number for _, part in batches(push, -1) for message in part})
        elif reply.status == Status.FAILED:
            unacknowledged.forget_within(reply.position + 1, last_id)
            unacknowledged.answer(give, range(push.after + 1, reply.position + 1))
        else:
            unacknowledged.answer(give, range(push.after + 1, last_id + 1) if inbox.repeats else ())

    def _handle(self, attachment: Attachment, inbox: PartitionInbox, push: Push) -> object:
        parked = [(one.id, one.key) for one in push.parked or ()]
        begin = inbox.begin((push.epoch, push.run), push.after, push.moves or 0, parked, retry=bool(push.again))
        if inbox.moved_from is not None:
            self._moved(push, inbox.moved_from)
        if isinstance(begin, Status):
            self._count(begin)
            return self._answer(begin, push.after)
        position, holding = begin, inbox.holding
        try:
            calls = attachment.calls(self._dispatcher)
            if push.again:
                return self._retried(calls, holding, push)
            by_key = attachment.record.retry.order == "key"
            for last_id, messages in pieces(push, begin, whole=calls.whole):
                if by_key:
                    call_by_key(calls, holding, messages, partial(self._note, push))
                elif holding:
                    calls.run(list(holding.free(messages)))
                else:
                    calls.run(messages)
                position = max(position, last_id)
        except ListenerFailed as failure:
            return self._failed(inbox, push, failure.handled, failure.__cause__ or failure, self._unhandled(failure))
        except Abandoned:
            raise
        except Exception as error:  # noqa: BLE001 - a CorruptRecord, or a defect here, which must not stall in silence
            unreadable = Unhandled(position + 1, None, UNREADABLE, error=_described(error))
            return self._failed(inbox, push, position, error, unreadable)
        self.counters.pushes += 1
        unhandled = holding.between(push.after, last_id_of(push)) if holding else ()
        return self._answer(Status.OK, inbox.end(position), unhandled)

    def _retried(self, calls: Calls, holding: Holding, push: Push) -> object:
        """The answer to a push of parked messages."""
        for number in push.settled or ():
            holding.settle(number)
        failures: list[Unhandled] = []
        for _, messages in batches(push, -1):
            failures += call_again(calls, holding, messages, partial(self._note, push))
        self.counters.pushes += 1
        return self._answer(Status.OK, push.after, failures)

    def _moved(self, push: Push, former: int) -> None:
        log.info("subscription %s on %s/%d comes from another owner: epoch %d after %d", self._name, push.queue,
                 push.partition, push.epoch, former)  # fmt: skip
        moved = Event("moved", push.queue, partition=push.partition, former_epoch=former, epoch=push.epoch)
        self._on_event(moved)

    def _failed(
        self, inbox: PartitionInbox, push: Push, handled: int, error: BaseException, unhandled: Unhandled
    ) -> object:  # fmt: skip
        """The answer to a push that ended its run."""
        held = inbox.holding.between(push.after, handled) if inbox.holding else []
        position = inbox.fail(handled)
        self._tell_failed(push, unhandled, error)
        return self._answer(Status.FAILED, position, [*held, unhandled])

    def _note(self, push: Push, failed: ListenerFailed) -> Unhandled:
        """A message that was not handled, while the run goes on."""
        unhandled = self._unhandled(failed)
        self._tell_failed(push, unhandled, failed.__cause__ or failed)
        return unhandled

    def _tell_failed(self, push: Push, unhandled: Unhandled, error: BaseException) -> None:
        self.counters.failed += 1
        trace = None if isinstance(error, Outcome) else error
        log.warning("subscription %s on %s/%d failed at id %s: %s", self._name, push.queue, push.partition,
                    MessageId(unhandled.id), unhandled.error, exc_info=trace)  # fmt: skip
        self._on_event(Event("failed", push.queue, error, push.partition))

    def _unhandled(self, failed: ListenerFailed) -> Unhandled:
        error, kind, after_ms = failed.__cause__ or failed, RAISED, None
        if isinstance(error, Retry):
            kind, after_ms = RETRY, error.after_ms
        elif isinstance(error, Reject):
            kind = REJECTED
        return Unhandled(failed.first, failed.message.key, kind, after_ms, _described(error), failed.last)

    def _count(self, status: Status) -> None:
        if status is Status.STALE:
            self.counters.stale += 1
        else:
            self.counters.skipped += 1

    def _answer(self, status: Status, position: int, unhandled: Sequence[Unhandled] = ()) -> object:
        failures = [
            self._idl.Failure(
                id=one.id, last=one.last or one.id, kind=one.kind, afterMs=one.after_ms, error=one.error, key=one.key
            )
            for one in unhandled
        ]
        return self._idl.PushReply(status=int(status), position=position, failures=failures or None)


def _described(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an application's exception may fail to describe itself
        text = type(error).__name__
    return text[:_ERROR_TEXT_MAX]


def _ready(result: object) -> Promise[object]:
    ready: Promise[object] = Promise()
    ready.give(result)
    return ready
