"""The publisher of the trio face (see `aio`), and its receipts.

A message costs a trio program little more than a blocking one: tasks that wait for messages of one batch are woken by
one call from the publisher's thread, and `put` gives the others a turn only now and then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Self, TypeVar

import trio

from delivery.client.outgoing import Bytes, NewMessage
from delivery.client.publisher import Publisher
from delivery.client.receipts import Batch, PublishedMessage, Receipt
from delivery.errors import DeadlineExceeded
from delivery.ids import MessageId

PUTS_AT_ONCE: Final = 64
"""Every so many puts the other tasks of the program get a turn; a turn takes several times as long as a put."""

T = TypeVar("T")

_waited_for: Final = trio.lowlevel.RunVar[dict[Batch, trio.Event] | None]("waited_for", default=None)
"""The batches whose outcome tasks of a run wait for."""


async def hop(call: Callable[..., T], *args: Any, **options: Any) -> T:  # noqa: ANN401
    """Call in a thread."""
    return await trio.to_thread.run_sync(partial(call, *args, **options))


class AsyncReceipt:
    """See Receipt."""

    __slots__ = ("_receipt",)

    def __init__(self, receipt: Receipt) -> None:
        self._receipt = receipt

    def done(self) -> bool:
        """See Receipt.done."""
        return self._receipt.done()

    async def result(self, timeout: float | None = None) -> PublishedMessage:
        """See Receipt.result. Cancelling it changes nothing for the message."""
        if self._receipt.done():
            await trio.lowlevel.checkpoint_if_cancelled()
        elif timeout is None:
            await _settled(self._receipt)
        else:
            with trio.move_on_after(timeout):
                await _settled(self._receipt)
            if not self._receipt.done():
                raise DeadlineExceeded(f"no answer within {timeout:g} s; the message is still on its way")
        return self._receipt.result(0)

    async def id(self) -> MessageId:
        """The id that the host gave; waits and raises as `result` does."""
        return (await self.result()).id


class AsyncPublisher:
    """See Publisher. An async context manager."""

    def __init__(self, publisher: Publisher) -> None:
        """Takes over a publisher made with `hop`."""
        self._publisher = publisher
        self._puts = 0

    async def put(
        self, body: Bytes, *, key: Bytes | None = None, topic: str = "", headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
    ) -> AsyncReceipt:  # fmt: skip
        """See Publisher.put. Hops to a thread only to wait for room; cancelled then, it may still be put."""
        put = self._publisher.put
        if not self._publisher.has_room():
            call = partial(put, body, key=key, topic=topic, headers=headers, partition=partition)
            return AsyncReceipt(await trio.to_thread.run_sync(call, abandon_on_cancel=True))
        self._puts += 1
        if self._puts % PUTS_AT_ONCE:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        return AsyncReceipt(put(body, key=key, topic=topic, headers=headers, partition=partition))

    async def put_many(self, messages: Iterable[Bytes | NewMessage]) -> list[AsyncReceipt]:
        """See Publisher.put_many."""
        return [AsyncReceipt(receipt) for receipt in await hop(self._publisher.put_many, list(messages))]

    async def flush(self, timeout: float | None = None) -> None:
        """See Publisher.flush."""
        await hop(self._publisher.flush, timeout)

    async def close(self) -> None:
        """See Publisher.close. Not cancelled."""
        with trio.CancelScope(shield=True):
            await hop(self._publisher.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with trio.CancelScope(shield=True):
            await hop(self._publisher.__exit__, kind, error, trace)


async def _settled(receipt: Receipt) -> None:
    """Wait until the outcome is known, with all tasks that wait for messages of the same batch."""
    waited_for = _waited_for.get()
    if waited_for is None:
        waited_for = {}
        _waited_for.set(waited_for)
    batch = receipt.batch
    told = waited_for.get(batch)
    if told is None:
        told = waited_for[batch] = trio.Event()
        receipt.add_done_callback(partial(_tell, trio.lowlevel.current_trio_token(), waited_for))
    await told.wait()


def _tell(token: trio.lowlevel.TrioToken, waited_for: dict[Batch, trio.Event], receipt: Receipt) -> None:
    with contextlib.suppress(trio.RunFinishedError):
        token.run_sync_soon(lambda: waited_for.pop(receipt.batch).set())
