"""The Listener service of idl/subscriber.thrift: what a region host's calls do here.

    push → `begin` on the trio thread, in order of arrival: known here? stale?
         → `_handle` on a thread (`dispatch`): the inbox, decoding, the listeners
         → back to the trio thread: the reply, as soon as it is there

Each subscription is a strand. With concurrency its partitions are strands of their own, or with order="key" the keys
(`abreast`).

Whatever goes wrong with a push is an answer to it; nothing is skipped in silence.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from delivery import logs
from delivery.errors import InvalidRequest, ServiceStopping
from delivery.ids import MessageId
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call, load_idl
from subscriber.attachment import Attachment
from subscriber.dispatch import Dispatcher
from subscriber.failures import by_listener, unforeseen, unforeseen_again, unreadable
from subscriber.holding import Holding, Unhandled
from subscriber.inbox import PartitionInbox, Status
from subscriber.keyed import call_again, call_by_key
from subscriber.keyed_push import KeyedPush
from subscriber.lapsing import Lapsing
from subscriber.listeners import Abandoned, Calls, ListenerFailed
from subscriber.looking import Lookout
from subscriber.outcomes import Outcome
from subscriber.pushes import Push, Reply, batches, last_id_of, messages_in, pieces
from subscriber.subscription import Event

log = logs.logger(__name__)

_STOPPING = ServiceStopping("the subscriber stops")


class Counters(msgspec.Struct):
    """What happened since the start. Written by the threads that call listeners; may be read at any time."""

    pushes: int = 0
    failed: int = 0
    skipped: int = 0
    stale: int = 0


class ListenerCalls:
    """The handler of the Listener service: pushes, and the question what runs, which takes a while."""

    def __init__(self, service: ListenerService) -> None:
        self._service = service

    def begin(self, call: Call) -> Promise[object] | Callable[[], Awaitable[object]]:
        """Take a call (see delivery.rpc.server.Handler)."""
        if call.method == "running":
            return partial(self._service.running, call.args.queue, call.args.subscription, call.args.token)
        return self._service.begin(call)


class ListenerService:
    """Handles the calls of all region hosts. `attached` is by queue, and changed on the trio thread alone."""

    def __init__(self, name: str, dispatcher: Dispatcher, on_event: Callable[[Event], None]) -> None:
        """`on_event` hears of pushes that could not be handled and partitions that moved, on the thread in question."""
        self._name, self.dispatcher, self._on_event = name, dispatcher, on_event
        self._idl = load_idl("subscriber")
        self.lookout = Lookout(dispatcher.task_of)
        self.lapsing = Lapsing(self)
        self.attached: dict[str, Attachment] = {}
        self.counters = Counters()
        self._counting = threading.Lock()
        self.stopping = False
        """Set to answer all pushes that are not begun yet with ServiceStopping."""

    def begin(self, call: Call) -> Promise[object]:
        """Take a call that is no question (see delivery.rpc.server.Handler)."""
        if call.method == "hello":
            return _ready(self._hello(call.args.queue, call.args.subscription))
        push: Push | None = call.args.push
        if push is None or None in (push.queue, push.partition, push.epoch, push.run, push.after, push.batches):
            raise InvalidRequest("a push lacks one of its fields")
        attachment = self.attached.get(push.queue) if push.subscription == self._name else None
        if attachment is None:
            return _ready(self.answer(Status.UNKNOWN, push.after))
        inbox = attachment.inbox.arrive(push.partition, (push.epoch, push.run))
        if isinstance(inbox, Status):
            return _ready(self.answer(inbox, push.after))
        answer: Promise[object] = Promise()
        job = partial(self._do, attachment, inbox, push, answer)
        strands, partition = attachment.strands, push.partition
        if strands is not None:
            abreast = attachment.abreast(partition, inbox, self.dispatcher.clock, self.lapsing.note)
            if abreast is not None:
                job = partial(abreast.take, KeyedPush(self, attachment, inbox, push, job, answer))
            job = partial(strands.submit, partition, job)
        self._take_up(attachment, partial(self._dispatch, attachment, job))
        return answer

    def resume(self, attachment: Attachment) -> None:
        """Go on with pushes that wait, if they are wanted now or the attachment is over; from any thread."""
        self._take_up(attachment, partial(self._resume, attachment))

    def _take_up(self, attachment: Attachment, job: Callable[[], None]) -> None:
        """Have `job` done after all of the subscription's before it, and no later for what other ones do."""
        if attachment.strands is None:
            self.dispatcher.submit(attachment, job)
        else:
            attachment.strands.submit(None, job)

    def _hello(self, queue: str, subscription: str) -> str:
        attachment = self.attached.get(queue) if subscription == self._name else None
        return "" if attachment is None else attachment.listener.token

    async def running(self, queue: str, subscription: str, token: str) -> list[object]:
        """What its callbacks do, for who knows the token."""
        if not token or token != self._hello(queue, subscription):
            return []
        attachment, looked = self.attached[queue], await self.lookout.look()
        found = [one for one in looked if one.queue == queue]  # what other subscriptions run holds this one up no more
        none = {"name": "", "queue": queue, "seconds": 0.0, "moving": False, "stack": ""}
        if not attachment.subscription.delivering:
            found.append(self._idl.Running(partition=0, message=0, held=True, **none))
        for partition, unacknowledged in tuple(attachment.unacknowledged.items()):
            if oldest := unacknowledged.oldest():
                found.append(self._idl.Running(partition=partition, message=oldest, held=False, **none))
        return found

    # -- on the threads that call listeners

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
            for unacknowledged in tuple(attachment.unacknowledged.values()):
                unacknowledged.end()

    def _is_over(self, attachment: Attachment) -> bool:
        """Whether pushes are answered without calling anybody."""
        return self.stopping or attachment.ended

    def _do(self, attachment: Attachment, inbox: PartitionInbox, push: Push, answer: Promise[object]) -> None:
        result: Any
        if self.stopping:
            result = _STOPPING
        elif attachment.ended:
            result = self.answer(Status.UNKNOWN, push.after)
        else:
            unacknowledged = attachment.unacknowledged.get(push.partition)
            if unacknowledged is None and attachment.subscription.manual:
                unacknowledged = attachment.unacknowledged[push.partition] = self.lapsing.unacknowledged()
            began = time.monotonic()
            try:
                with self.lookout.at(push.queue, push.partition):
                    result = self._handle(attachment, inbox, push)
            except Abandoned:
                return  # the loop has ended, nobody waits
            except BaseException as error:  # noqa: BLE001 - whatever failed, the host must not wait for an answer
                result = self._unforeseen(inbox, push, error)
            if attachment.strands is not None and result.status == Status.OK:
                attachment.strands.worked(messages_in(push), began)
            attachment.settled(push, result)
            if unacknowledged is not None:
                unacknowledged.settle(
                    push, result, partial(self._give, answer), repeated=inbox.repeats, beginning=inbox.beginning,
                    limit=attachment.record.retry.ack_timeout_seconds,
                )  # fmt: skip
                if self._is_over(attachment):  # that was noticed meanwhile
                    unacknowledged.end()
                return
        self.dispatcher.post(partial(answer.give, result))

    def _give(self, answer: Promise[object], result: Reply | None) -> None:
        self.dispatcher.post(partial(answer.give, _STOPPING if result is None else result))

    def begin_push(self, inbox: PartitionInbox, push: Push) -> Status | int:
        """See PartitionInbox.begin; tells of a move, and counts what is not to be handled."""
        parked = [(one.id, one.key) for one in push.parked or ()]
        begin = inbox.begin((push.epoch, push.run), push.after, push.moves or 0, parked, retry=bool(push.again))
        if inbox.moved_from is not None:
            self._moved(push, inbox.moved_from)
        if isinstance(begin, Status):
            self.count("stale" if begin is Status.STALE else "skipped")
        return begin

    def _handle(self, attachment: Attachment, inbox: PartitionInbox, push: Push) -> object:
        begin = self.begin_push(inbox, push)
        if isinstance(begin, Status):
            return self.answer(begin, push.after)
        position, holding = begin, inbox.holding
        try:
            calls = attachment.calls(self.dispatcher)
            if push.again:
                return self._retried(calls, holding, push)
            by_key = attachment.record.retry.order == "key"
            for last, messages in pieces(push, begin, whole=calls.whole):
                if inbox.has_gaps:
                    messages = [one for one in messages if inbox.is_wanted(one.number)]  # noqa: PLW2901 - so far
                if by_key:
                    call_by_key(calls, holding, messages, partial(self.note, push))
                elif holding:
                    calls.run(list(holding.free(messages)))
                else:
                    calls.run(messages)
                position = max(position, last)
        except ListenerFailed as failure:
            return self.failed(inbox, push, failure)
        except Abandoned:
            raise
        except Exception as error:  # noqa: BLE001 - a CorruptRecord, or a defect here, which must not stall in silence
            return self.unreadable(inbox, push, position, error)
        self.count("pushes")
        unhandled = holding.between(push.after, last_id_of(push)) if holding else ()
        return self.answer(Status.OK, inbox.end(position), unhandled)

    def _retried(self, calls: Calls, holding: Holding, push: Push) -> object:
        """The answer to a push of parked messages."""
        for number in push.settled or ():
            holding.settle(number)
        failures: list[Unhandled] = []
        for _, messages in batches(push, -1):
            failures += call_again(calls, holding, messages, partial(self.note, push))
        self.count("pushes")
        return self.answer(Status.OK, push.after, failures)

    def _moved(self, push: Push, former: int) -> None:
        log.info("subscription %s on %s/%d comes from another owner: epoch %d after %d", self._name, push.queue,
                 push.partition, push.epoch, former)  # fmt: skip
        moved = Event("moved", push.queue, partition=push.partition, former_epoch=former, epoch=push.epoch)
        self._on_event(moved)

    def failed(self, inbox: PartitionInbox, push: Push, failed: ListenerFailed) -> object:
        """The answer to a push that a listener ended its run at."""
        return self._ended_run(inbox, push, failed.handled, failed.__cause__ or failed, by_listener(failed))

    def unreadable(self, inbox: PartitionInbox, push: Push, position: int, error: Exception) -> object:
        """The answer to a push that cannot be read behind `position`."""
        return self._ended_run(inbox, push, position, error, unreadable(position, error))

    def _unforeseen(self, inbox: PartitionInbox, push: Push, error: BaseException) -> object:
        """The answer to a push over which something else failed than its listeners: what tells of failures, say."""
        with contextlib.suppress(BaseException):
            self._on_event(Event("failed", push.queue, error, push.partition))
            log.error("subscription %s on %s/%d failed unexpectedly", self._name, push.queue, push.partition,
                      exc_info=error)  # fmt: skip
        self.count("failed")
        if push.again:
            return self.answer(Status.OK, push.after, unforeseen_again(push, inbox.holding, error))
        handled = inbox.position
        held = inbox.holding.between(push.after, handled) if inbox.holding else []
        return self.answer(Status.FAILED, inbox.fail(handled), [*held, unforeseen(push, handled, error)])

    def _ended_run(
        self, inbox: PartitionInbox, push: Push, handled: int, error: BaseException, unhandled: Unhandled
    ) -> object:  # fmt: skip
        held = inbox.holding.between(push.after, handled) if inbox.holding else []
        position = inbox.fail(handled)
        self.tell_failed(push, unhandled, error)
        return self.answer(Status.FAILED, position, [*held, unhandled])

    def note(self, push: Push, failed: ListenerFailed) -> Unhandled:
        """A message that was not handled, while the run goes on."""
        unhandled = by_listener(failed)
        self.tell_failed(push, unhandled, failed.__cause__ or failed)
        return unhandled

    def tell_failed(self, push: Push, unhandled: Unhandled, error: BaseException) -> None:
        """Count, log and tell that a message was not handled. On a thread that calls listeners."""
        self.count("failed")
        trace = None if isinstance(error, Outcome) else error
        log.warning("subscription %s on %s/%d failed at id %s: %s", self._name, push.queue, push.partition,
                    MessageId(unhandled.id), unhandled.error, exc_info=trace)  # fmt: skip
        self._on_event(Event("failed", push.queue, error, push.partition))

    def count(self, field: str) -> None:
        """One more of what the counter of that name counts; from any thread."""
        with self._counting:
            setattr(self.counters, field, getattr(self.counters, field) + 1)

    def answer(
        self, status: Status, position: int, unhandled: Sequence[Unhandled] = (), abreast: int | None = None
    ) -> object:  # fmt: skip
        """A PushReply."""
        failures = [
            self._idl.Failure(
                id=one.id, last=one.last or one.id, kind=one.kind, afterMs=one.after_ms, error=one.error, key=one.key
            )
            for one in unhandled
        ]
        return self._idl.PushReply(
            status=int(status), position=position, failures=failures or None, abreast=abreast
        )  # fmt: skip


def _ready(result: object) -> Promise[object]:
    ready: Promise[object] = Promise()
    ready.give(result)
    return ready
