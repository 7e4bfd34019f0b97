"""The SubscriptionWorker: one partition of one subscription, from its checkpoint on, until it is told to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from delivery.config import HostConfig
from delivery.dispatch.buffer import Buffer
from delivery.dispatch.scanner import MessageScanner, Source
from delivery.dispatch.sender import Counters, Ending, MessageSender, Stream, Target
from delivery.dispatch.window import Window
from delivery.filters import Filter


class Link(Protocol):
    """The way to the attached listener, shared by the workers of a subscription."""

    async def target(self) -> Target:
        """The connection, once there is one."""


class SubscriptionWorker:
    """MessageScanner → buffer → MessageSender, run after run.

    `run` owns the tasks; it returns when the listener refuses the subscription or after `drain`, and raises the
    partition's error when this host lost it. Cancelling it is safe at any point: the position only says what was
    acknowledged.
    """

    def __init__(
        self, stream: Stream, source: Source, *, position: int, first_run: int, wanted: Filter | None,
        config: HostConfig, counters: Counters, on_position: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.stream = stream
        self._config = config
        self._window = Window(position, config.window_messages, config.window_bytes, first_run)
        self._scanner = MessageScanner(source, wanted, config.push_bytes)
        self._sender = MessageSender(stream, self._window, counters, on_position)
        self._scanning = trio.CancelScope()
        self._draining = False
        self._ending = Ending.BROKEN

    def __repr__(self) -> str:
        return f"<SubscriptionWorker {self.stream.subscription} {self.stream.queue}/{self.stream.partition}>"

    @property
    def position(self) -> int:
        """Everything up to here was acknowledged."""
        return self._window.position

    @property
    def unacknowledged(self) -> int:
        """Messages that were pushed and not yet answered."""
        return self._window.unacknowledged

    async def run(self, link: Link) -> None:
        """Deliver until refused, drained, cancelled, or the partition is lost."""
        while not self._draining:
            ending = await self._one_run(await link.target())
            if ending is Ending.REFUSED:
                return
            if ending is Ending.FAILED:
                await trio.sleep(self._config.retry_delay_seconds)

    def drain(self) -> None:
        """Scan no further; `run` returns when what is out has been answered."""
        self._draining = True
        self._scanning.cancel()

    async def _one_run(self, target: Target) -> Ending:
        config, sender = self._config, self._sender
        buffer = Buffer(config.buffer_messages, config.buffer_bytes, sender.pump)
        self._ending = Ending.BROKEN
        with trio.CancelScope() as run:

            def end(ending: Ending) -> None:
                self._ending = ending
                run.cancel()

            sender.begin(buffer, target, end)
            try:
                await self._scan(buffer)
            finally:
                sender.stop()
                self._window.rewind()  # also where it was the partition that ended the run
        return self._ending

    async def _scan(self, buffer: Buffer) -> None:
        """Scan until `drain`, then wait for the answers to what is out."""
        with trio.CancelScope() as self._scanning:
            await self._scanner.run(buffer, self._window.position)
        await self._sender.drained()
