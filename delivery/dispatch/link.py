"""The Link: a host's way to one attached listener, shared by all workers of the subscription.

The connection is shared with other subscriptions (`lines`). Before anything is sent the listener must answer `hello`
with the token of its registration: a port that another program took over gets no message. When the connection breaks,
or `hello` is not answered as it should be, that is tried again with growing pauses, for as long as the listener stays
registered. Meanwhile there is a task for it, and none while the connection stands.

What a subscription has out on the connection is bounded, so that the subscriber reads on whatever one of its
subscriptions does not answer: a host sends it at most PUSHES_MAX pushes and, but for the last of them, PUSH_BYTES_MAX
bytes before the first answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import trio

from delivery import logs
from delivery.config import HostConfig
from delivery.dispatch.lines import Line, Lines
from delivery.dispatch.plain import PlainTarget
from delivery.dispatch.target import Answer, More, Stream, Target
from delivery.errors import HootError, SubscriberUnreachable
from delivery.metastore.records import ListenerRecord
from delivery.rpc.connection import Connection
from delivery.rpc.sharing import PUSH_BYTES_MAX, PUSHES_MAX

log = logs.logger(__name__)

OnAnswer = Callable[[Answer | HootError], None]


class PackedTarget:
    """Pushes record batches as they are, many before the first answer, on a connection that others use, too."""

    __slots__ = ("_bytes", "_connection", "_ended", "_last", "_out", "_waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._out: dict[int, tuple[OnAnswer, int]] = {}
        """What is not answered, with its bytes, by number."""
        self._last = self._bytes = 0
        self._waiting: dict[Callable[[], None], None] = {}
        self._ended = False

    @property
    def ready(self) -> bool:
        """Whether the listener's socket takes bytes, and the subscription may have more on its way."""
        return self._ended or (self._has_room and self._connection.ready)

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Call `tell` once when it does again, or is gone."""
        if self._has_room:
            self._connection.when_ready(tell)
        else:
            self._waiting[tell] = None

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, on_answer: OnAnswer, more: More | None = None,
    ) -> None:  # fmt: skip
        """Send one push; raises HootError when the connection is broken."""
        if self._ended:
            raise SubscriberUnreachable("the listener is registered no more")
        self._last = number = self._last + 1
        place = (stream.queue, stream.subscription, stream.partition, stream.epoch)
        on_reply = partial(self._answered, number)
        if more is None:
            self._connection.push(*place, run, after, data, on_reply, moves=stream.moves)
        else:
            self._connection.push(
                *place, run, after, data, on_reply, moves=stream.moves, parked=more.parked, again=more.again,
                settled=more.settled,
            )  # fmt: skip
        self._out[number] = on_answer, len(data)
        self._bytes += len(data)

    def end(self) -> None:
        """Nobody waits for answers any more: what is out fails, although the connection may live on."""
        self._ended = True
        for number in list(self._out):
            self._answered(number, SubscriberUnreachable("the listener is registered no more"))
        self._tell_waiting()

    @property
    def _has_room(self) -> bool:
        return len(self._out) < PUSHES_MAX and self._bytes < PUSH_BYTES_MAX

    def _answered(self, number: int, answer: Answer | HootError) -> None:
        if (sent := self._out.pop(number, None)) is None:
            return
        on_answer, size = sent
        self._bytes -= size
        on_answer(answer)
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        """Those who wait for room; whether the socket takes anything they see then."""
        while self._waiting and (self._has_room or self._ended):
            tell = next(iter(self._waiting))
            del self._waiting[tell]
            tell()


class Link:
    """Connects, and connects again, between `begin` and `end`; workers wait for the connection in `target`."""

    __slots__ = (
        "_config", "_line", "_lines", "_listener", "_queue", "_reachable", "_scope", "_subscription", "_target",
        "_wanted", "down_since", "trouble",
    )  # fmt: skip

    def __init__(
        self, queue: str, subscription: str, listener: ListenerRecord, config: HostConfig, lines: Lines
    ) -> None:  # fmt: skip
        self._queue, self._subscription, self._listener, self._config = queue, subscription, listener, config
        self._lines = lines
        self._line: Line | None = None
        self._target: PackedTarget | PlainTarget | None = None
        self._wanted: trio.Event | None = None
        """Set when there is a target, while somebody waits for one."""
        self._scope: trio.CancelScope | None = None
        """Of the task that connects, while there is one."""
        self._reachable = True
        self.down_since: float | None = time.monotonic()
        """Since when there is no proven connection; None while there is one."""
        self.trouble = ""
        """Why there is none, since an attempt has failed."""

    async def target(self) -> Target:
        """The proven connection; waits until there is one."""
        while self._target is None:
            if self._wanted is None:
                self._wanted = trio.Event()
            await self._wanted.wait()
        return self._target

    def begin(self) -> None:
        """Connect."""
        self._scope = trio.CancelScope()
        self._lines.background.start_soon(partial(self._connect, self._scope))

    def end(self) -> None:
        """Use the connection no more, and open none."""
        if self._scope is not None:
            self._scope.cancel()
        self._down()
        if self._line is not None:
            self._lines.leave(self._line, self._ended)
            self._line = None

    async def _connect(self, scope: trio.CancelScope, *, again: bool = False) -> None:
        """Try until there is a proven connection; `again`, when one has broken just now."""
        pause = self._config.reconnect_delay_seconds
        with scope:
            up = False
            while not up:
                if again:
                    await trio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(pause * 2, self._config.reconnect_delay_max_seconds)
                up, again = await self._try_safely(), True
            self._scope = None

    async def _try_safely(self) -> bool:
        """Whether there is a proven connection now; a defect counts as a listener that cannot be reached."""
        try:
            return await self._try()
        except Exception as error:
            log.exception("subscription %s on %s: connecting failed unexpectedly", self._subscription, self._queue)
            self._note_unreachable(SubscriberUnreachable(f"connecting failed unexpectedly: {error!r}"))
            return False

    async def _try(self) -> bool:
        """Whether there is a proven connection now."""
        listener = self._listener
        try:
            alone = listener.protocol != "packed"  # calls of plain listeners are answered one after another
            line, connection = await self._lines.take(listener.address, listener.port, self._ended, alone=alone)
        except HootError as error:
            self._note_unreachable(error)
            return False
        try:
            await self._say_hello(connection)
            await trio.lowlevel.checkpoint_if_cancelled()  # it may have ended as the answer came
        except BaseException as error:
            self._lines.leave(line, self._ended)
            if not isinstance(error, HootError):
                raise
            self._note_unreachable(error)
            return False
        self._up(line, connection)
        return True

    async def _say_hello(self, connection: Connection) -> None:
        listener = self._listener
        kind = "Listener" if listener.protocol == "packed" else "PlainListener"
        with trio.move_on_after(self._config.hello_seconds):
            token = await connection.call(kind, "hello", self._queue, self._subscription)
            if token == listener.token:
                return
            raise SubscriberUnreachable(
                f"what listens at {listener.host_port} is not the listener of {self._subscription!r}"
            )
        raise SubscriberUnreachable(f"the listener at {listener.host_port} does not answer")

    def _up(self, line: Line, connection: Connection) -> None:
        self._line = line
        if self._listener.protocol == "packed":
            self._target = PackedTarget(connection)
        else:
            self._target = plain = PlainTarget(connection)
            self._lines.background.start_soon(partial(self._run_plain, plain, connection))
        if self._wanted is not None:
            self._wanted.set()
            self._wanted = None
        if not self._reachable:
            log.info("subscription %s on %s: its listener is back", self._subscription, self._queue)
        self._reachable, self.down_since, self.trouble = True, None, ""

    async def _run_plain(self, plain: PlainTarget, connection: Connection) -> None:
        """Push until the target ends; its connection, which nobody else uses, ends with it."""
        try:
            await plain.run()
        finally:
            with trio.CancelScope(shield=True):
                await connection.aclose()

    def _ended(self) -> None:
        """The connection has ended by itself; while it is not proven, who says hello hears of that."""
        if (line := self._line) is None:
            return
        self._line = None
        self._down()
        if line.error is not None:
            self._note_unreachable(line.error)
        self._scope = trio.CancelScope()
        self._lines.background.start_soon(partial(self._connect, self._scope, again=True))

    def _down(self) -> None:
        target, self._target = self._target, None
        self.down_since = self.down_since or time.monotonic()
        if target is not None:
            target.end()

    def _note_unreachable(self, error: HootError) -> None:
        if self._reachable:
            log.warning("subscription %s on %s waits for its listener: %s", self._subscription, self._queue, error)
        self._reachable, self.trouble = False, error.message
