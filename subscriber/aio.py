"""The Subscriber for trio programs: the same names, in the program's own loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import trio

from delivery.errors import UnknownSubscription
from delivery.filters import KEEP, FilterGiven, TopicsGiven
from delivery.ids import Start
from delivery.metastore.flow import FlowGiven
from delivery.metastore.groups import Kind
from delivery.metastore.policy import RetryGiven
from delivery.metastore.request import Mode, Partitions, check_request
from delivery.model import Isolation
from subscriber.declaration import Declaration
from subscriber.listeners import Concurrency, Form, Where
from subscriber.runtime import Runtime
from subscriber.subscription import Subscription
from subscriber.unwrapping import only_error


class AsyncSubscriber(Declaration):
    """As Subscriber, in a trio program.

        async with AsyncSubscriber("audit", zookeeper="127.0.0.1:2181") as subscriber: ...
        await nursery.start(subscriber.run)

    Async listeners run as coroutines in this loop, one at a time; sync ones on one thread of the subscriber's; with
    `subscribe(concurrency=…)` several at a time. `run`
    owns everything; `start` and `async with` run it in a nursery.
    """

    _ended: trio.Event | None = None
    _within: AbstractAsyncContextManager[trio.Nursery, bool | None] | None = None

    async def subscribe(  # noqa: PLR0913 - a subscription has so many sides
        self, queue: str, partitions: Partitions = None, topics: TopicsGiven = KEEP,
        start: Start | Mapping[int, Start] = "latest", *,
        filter: FilterGiven = KEEP, where: Where | None = None,  # noqa: A002 - what everybody calls it
        retry: RetryGiven = None,
        kind: Kind | None = None,
        mode: Mode = "create_or_attach",
        manual: bool = False,
        bound: int | None = None,
        flow: FlowGiven = KEEP,
        concurrency: Concurrency = 1,
        isolation: Isolation | None = None,
        listener: Callable[..., object] | None = None,
        batch_listener: Callable[..., object] | None = None,
    ) -> Subscription:  # fmt: skip
        """As Subscriber.subscribe."""
        request = check_request(
            queue, partitions, topics, start, filter, retry=retry, mode=mode, kind=kind, bound=bound, flow=flow,
            isolation=isolation,
        )  # fmt: skip
        given: dict[Form, Callable[..., object] | None] = {"message": listener, "batch": batch_listener}
        subscription = self._declare(request, where, given, manual=manual, concurrency=concurrency)
        if self._runtime is not None:
            try:
                await self._runtime.add([subscription])
            except BaseException:
                del self.subscriptions[queue]
                raise
        return subscription

    async def unsubscribe(self, queue: str) -> None:
        """As Subscriber.unsubscribe."""
        declared = self.subscriptions.get(queue)
        try:
            if self._runtime is not None:
                await self._runtime.remove(queue)
            else:
                await trio.to_thread.run_sync(self._delete, queue)
        except UnknownSubscription:
            if declared is None or declared.state != "new":
                raise
        self.subscriptions.pop(queue, None)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start, report that by `task_status`, and serve until `stop`. Raises what Subscriber.start and run raise.

        Cancelled: async listeners are cancelled; a sync one under way is waited for, up to `grace_seconds`; what was
        not acknowledged is delivered again to whoever attaches next.
        """
        self._check_startable()
        self._runtime, self._ended = Runtime(self.settings, self._emit), trio.Event()
        try:
            await self._runtime.run(list(self.subscriptions.values()), task_status=task_status)
        finally:
            self._runtime = None
            self._ended.set()

    async def start(self, nursery: trio.Nursery) -> None:
        """Have `run` run in `nursery`; returns when all is registered."""
        await nursery.start(self.run)

    async def stop(self) -> None:
        """As Subscriber.stop; returns when `run` has ended, in a listener at once."""
        runtime, ended = self._runtime, self._ended
        if runtime is None or ended is None:
            return
        runtime.stop()
        if not runtime.dispatcher.is_own_task:
            await ended.wait()

    async def __aenter__(self) -> Self:
        self._within = trio.open_nursery()
        nursery = await self._within.__aenter__()
        try:
            await self.start(nursery)
        except BaseException as error:
            await self._leave(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if error is None:
            await self.stop()
        return await self._leave(kind, error, trace)

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        within, self._within = self._within, None
        assert within is not None
        try:
            return await within.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            raise only_error(group) from None
