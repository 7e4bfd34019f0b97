"""The Supervisor: keeps exactly the deliveries running that ZooKeeper's registrations ask for."""

from __future__ import annotations

import msgspec
import trio

from delivery import logs
from delivery.config import HostConfig
from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.dispatch.delivery import Delivery, Tools
from delivery.dispatch.plan import Attached, SubscriptionKey, steps
from delivery.dispatch.watch import SubscriptionWatch
from delivery.errors import HootError

log = logs.logger(__name__)

_FINAL_FLUSH_SECONDS = 5.0
"""How long a stopping host tries to save its last checkpoints."""

_UNEXPECTED_PAUSE_SECONDS = 5.0
"""Before a delivery that ended with an error nobody foresaw is started again."""


class _Running(msgspec.Struct):
    delivery: Delivery
    scope: trio.CancelScope
    ended: trio.Event


class Supervisor:
    """Owns the watch, the deliveries and the checkpoint keeper while `run` runs."""

    def __init__(self, watch: SubscriptionWatch, keeper: CheckpointKeeper, tools: Tools, config: HostConfig) -> None:
        self._watch, self._keeper, self._tools, self._config = watch, keeper, tools, config
        self._running: dict[SubscriptionKey, _Running] = {}
        self._watching = trio.CancelScope()

    @property
    def deliveries(self) -> list[Delivery]:
        """What runs now, for metrics and listings."""
        return [running.delivery for running in self._running.values()]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then, or after `drain`, the last checkpoints are saved."""
        self._watch.begin()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keeper.run)
                await nursery.start(self._tools.lines.background.run)
                task_status.started()
                with self._watching:
                    await self._reconcile_forever(nursery)
                await self._all_ended()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(_FINAL_FLUSH_SECONDS):
                await self._keeper.flush()

    async def drain(self, grace_seconds: float) -> None:
        """Stop scanning, give what is out `grace_seconds` to be answered, then end every delivery."""
        self._watching.cancel()
        running = list(self._running.values())
        for one in running:
            one.delivery.drain()
        with trio.move_on_after(grace_seconds):
            for one in running:
                await one.ended.wait()
        for one in running:
            one.scope.cancel()

    async def _all_ended(self) -> None:
        for one in list(self._running.values()):
            await one.ended.wait()

    async def _reconcile_forever(self, nursery: trio.Nursery) -> None:
        while True:
            try:
                found = await self._watch.read(frozenset(queue for queue, _ in self._running))
                await self._apply(nursery, found)
            except HootError as error:
                log.warning("cannot read the subscriptions: %s", error)
                await trio.sleep(self._config.reconnect_delay_max_seconds)
                continue
            await self._watch.changed(self._config.reconcile_seconds)

    async def _apply(self, nursery: trio.Nursery, found: dict[str, dict[str, Attached]]) -> None:
        running = {key: one.delivery.attached for key, one in self._running.items()}
        todo = steps(running, found)
        for key in todo.stop:
            await self._stop(key)
        for attached in todo.start:
            self._start(nursery, attached)
        for attached in todo.change:
            self._running[attached.subscription.queue, attached.subscription.name].delivery.change(attached)

    def _start(self, nursery: trio.Nursery, attached: Attached) -> None:
        record = attached.subscription
        one = _Running(Delivery(attached, self._tools), trio.CancelScope(), trio.Event())
        self._running[record.queue, record.name] = one
        nursery.start_soon(self._run_one, one)
        log.info("subscription %s on %s: delivering to %s", record.name, record.queue, attached.places)

    async def _run_one(self, one: _Running) -> None:
        """One delivery. An unexpected error costs its subscription a pause, never the host."""
        try:
            with one.scope:
                is_over = False
                while not is_over:
                    try:
                        await one.delivery.run()
                        is_over = True
                    except Exception:
                        log.exception("a delivery stopped unexpectedly; it starts again from its checkpoints")
                        await trio.sleep(_UNEXPECTED_PAUSE_SECONDS)
        finally:
            one.ended.set()

    async def _stop(self, key: SubscriptionKey) -> None:
        one = self._running.pop(key)
        one.scope.cancel()
        await one.ended.wait()
        log.info("subscription %s on %s: delivery stopped", key[1], key[0])
