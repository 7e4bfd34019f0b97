"""A push whose keys are worked off side by side: what `abreast` asks of it, answered by the service."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from delivery.errors import HootError, ServiceStopping
from delivery.model import Message
from delivery.rpc.promise import Promise
from subscriber.abreast import Work
from subscriber.holding import Unhandled
from subscriber.inbox import PartitionInbox, Status
from subscriber.listeners import Calls, ListenerFailed
from subscriber.pushes import Push, batches, last_id_of

if TYPE_CHECKING:
    from subscriber.attachment import Attachment
    from subscriber.service import ListenerService


class KeyedPush:
    """See abreast.Handling."""

    def __init__(
        self, service: ListenerService, attachment: Attachment, inbox: PartitionInbox, push: Push,
        handle: Callable[[], None], answer: Promise[object],
    ) -> None:  # fmt: skip
        """`handle` handles and answers it as a whole."""
        self._service, self._attachment, self._inbox, self._push = service, attachment, inbox, push
        self._answer = answer
        self.turn = push.epoch, push.run
        self.again = bool(push.again)
        self.handle = handle

    @cached_property
    def _calls(self) -> Calls:
        return self._attachment.calls(self._service.dispatcher)

    @property
    def is_whole(self) -> bool:
        """See Handling; so is what has another order by now, or listeners that cannot be called."""
        try:
            return self._attachment.record.retry.order != "key" or self._calls.takes_lists
        except HootError:
            return True

    @property
    def outstay_seconds(self) -> float:
        """See Handling."""
        return self._calls.outstay_seconds

    def begin(self) -> Work | Status:
        """See Handling."""
        if self._service.stopping:
            return Status.SKIPPED
        if self._attachment.ended:
            return Status.UNKNOWN
        begin = self._service.begin_push(self._inbox, self._push)
        if isinstance(begin, Status):
            return begin
        work = Work([], begin)
        for number in self._push.settled or () if self.again else ():
            self._inbox.holding.settle(number)
        try:
            for last, messages in batches(self._push, -1 if self.again else begin):
                work.messages += messages
                work.position = max(work.position, last)
        except Exception as error:  # noqa: BLE001 - a CorruptRecord, or a defect here, which must not stall in silence
            work.damage = error
        return work

    def call(self, message: Message) -> None:
        """See Handling."""
        began, strands = time.monotonic(), self._attachment.strands
        with self._service.lookout.at(self._push.queue, self._push.partition):
            self._calls.run([message])
        if strands is not None:
            strands.worked(1, began)

    def note(self, failed: ListenerFailed) -> Unhandled:
        """See Handling."""
        return self._service.note(self._push, failed)

    def skip(self, status: Status) -> None:
        """See Handling."""
        stopping = self._service.stopping and status is Status.SKIPPED
        self._give(ServiceStopping("the subscriber stops") if stopping else self._reply(status))

    def end_early(self, position: int) -> bool:
        """See Handling; what it holds of its messages must be told in order."""
        if self._held():
            return False
        self._end(position, [])
        return True

    def pass_by(self, position: int) -> None:
        """See Handling."""
        self._inbox.end(position)

    def end(self, position: int, unhandled: list[Unhandled] | None) -> None:
        """See Handling."""
        if unhandled is not None:
            self._service.count("pushes")
            self._give(self._reply(Status.OK, unhandled))
            return
        self._inbox.end(position)
        self._end(position, self._held())

    def _held(self) -> list[Unhandled]:
        return self._inbox.holding.between(self._push.after, last_id_of(self._push)) if self._inbox.holding else []

    def _end(self, position: int, held: list[Unhandled]) -> None:
        strands = self._attachment.strands
        self._service.count("pushes")
        self._give(self._service.answer(Status.OK, position, held, None if strands is None else strands.abreast))

    def fail(self, handled: int, why: ListenerFailed | Exception) -> None:
        """See Handling."""
        if isinstance(why, ListenerFailed):
            self._give(self._service.failed(self._inbox, self._push, why))
        else:
            self._give(self._service.unreadable(self._inbox, self._push, handled, why))

    def _reply(self, status: Status, unhandled: list[Unhandled] | None = None) -> object:
        return self._service.answer(status, self._push.after, unhandled or ())

    def _give(self, result: object) -> None:
        self._service.dispatcher.post(partial(self._answer.give, result))
