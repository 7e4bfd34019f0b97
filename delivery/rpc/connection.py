"""A host's trio connection to a listener: many calls under way, replies in any order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import trio

from delivery.errors import HootError, ProtocolError, SubscriberUnreachable
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.outbox import Outbox, receive_into
from delivery.rpc.protocol import answered_call, decode_reply, encode_call, load_idl

REPLY_BYTES_MAX = 1 << 20
"""Replies of listeners are small: a token, or a status and an error's text."""
_QUIET_BYTES = 1024
"""Room for a dozen replies to pushes: most connections are quiet, and a host has one for each attached listener."""
_SEQID_MAX = 2**31 - 1


_DEAD_PEER_SECONDS = 20
"""After so long without a sign of life from the peer's machine the connection breaks, however slow its program is."""


class _Sent(NamedTuple):
    """A call without its reply yet."""

    seqid: int
    service: str
    method: str
    on_reply: Callable[[Any], None]


class Connection:
    """One connection. `run` receives and must be running for any reply to arrive; whoever opened it calls `aclose`.

    Calls are sent at once, in the caller's turn; what the socket does not take is kept, and `ready` says so. Nothing
    here limits how long a reply may take or how many calls are under way: listeners are as slow as their callbacks.
    The caller bounds its window and waits while it is not `ready`.
    """

    def __init__(self, socket: trio.socket.SocketType, peer: str) -> None:
        self._socket, self._peer = socket, peer
        self._outbox = Outbox(socket)
        self._nursery: trio.Nursery | None = None
        """While it runs."""
        self._flushing = False
        self._waiting: dict[Callable[[], None], None] = {}
        self._sent: dict[int, _Sent] = {}
        """By their sequence numbers, the oldest first."""
        self._seqid = 0
        self._broken = ""
        """Why it cannot be used any more."""
        self._closed = False

    @classmethod
    async def open(cls, address: str, port: int, *, deadline_seconds: float = 5.0) -> Connection:
        """Connect within `deadline_seconds`. Raises SubscriberUnreachable. Cancelled: nothing stays open."""
        peer = f"{address}:{port}"
        try:
            with trio.fail_after(deadline_seconds):
                stream = await trio.open_tcp_stream(address, port)  # sets TCP_NODELAY
        except trio.TooSlowError:
            raise SubscriberUnreachable(f"{peer} did not accept a connection in {deadline_seconds} s") from None
        except (OSError, ValueError) as error:
            raise SubscriberUnreachable(f"cannot connect to {peer}: {error}") from None
        _notice_dead_peer(stream.socket)
        return cls(stream.socket, peer)

    @property
    def unanswered(self) -> int:
        """How many calls have no reply yet."""
        return len(self._sent)

    @property
    def ready(self) -> bool:
        """Whether a call has its outcome at once: the peer takes what is sent, or the connection is broken.

        Whoever waited for a broken one to get ready would wait for ever.
        """
        return bool(self._broken) or not self._outbox.waiting

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Call `tell` once, as soon as it is ready again, or broken."""
        self._waiting[tell] = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Receive replies until `aclose`. Raises SubscriberUnreachable when the connection breaks before.

        However it ends, the connection is closed then; calls without a reply fail with SubscriberUnreachable.
        """
        task_status.started()
        try:
            async with trio.open_nursery() as self._nursery:
                self._flush_soon()
                await self._breaking(self._receive)
                self._nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            self._break(f"the connection to {self._peer} is not served any more")
        if not self._closed:
            raise SubscriberUnreachable(self._broken)

    async def call(self, service: str, method: str, *args: Any) -> Any:
        """Call and wait for the result. Raises the HootError that came back, or SubscriberUnreachable.

        Cancelled: the reply is ignored when it comes.
        """
        answered, replies = trio.Event(), []

        def on_reply(reply: Any) -> None:
            replies.append(reply)
            answered.set()

        self.call_soon(service, method, args, on_reply)
        await answered.wait()
        if isinstance(replies[0], HootError):
            raise replies[0]
        return replies[0]

    def push(  # noqa: PLR0913, PLR0917 (the fields of the IDL's Push, in their order)
        self,
        queue: str,
        subscription: str,
        partition: int,
        epoch: int,
        run: int,
        after: int,
        batches: bytes,
        on_reply: Callable[[Any], None],
        *,
        moves: int = 0,
        parked: Iterable[tuple[int, bytes | None]] | None = None,
        again: bool = False,
        settled: Sequence[int] = (),
    ) -> None:
        """Send one push (idl: Push); `on_reply` gets the PushReply or a HootError. As `call_soon`."""
        push = load_idl("subscriber").Push(
            queue=queue, subscription=subscription, partition=partition, epoch=epoch, run=run, after=after,
            batches=batches, moves=moves or None,
        )  # fmt: skip
        if parked is not None:
            made = load_idl("subscriber").ParkedMessage
            push.parked = [made(id=number, key=key) for number, key in parked]
        if again:
            push.again, push.settled = True, list(settled)
        self.call_soon("Listener", "push", (push,), on_reply)

    def call_soon(self, service: str, method: str, args: tuple[Any, ...], on_reply: Callable[[Any], None]) -> None:
        """Send a call; `on_reply` is called once, later, on the trio thread, with its result or a HootError.

        Raises SubscriberUnreachable when the connection is broken before, InvalidRequest for arguments that cannot be
        coded; then `on_reply` is not called. If it breaks later, `on_reply` is told.
        """
        if self._broken:
            raise SubscriberUnreachable(self._broken)
        self._seqid = self._seqid % _SEQID_MAX + 1
        frame = encode_call(service, method, self._seqid, args)
        try:
            self._outbox.send(frame)
        except OSError as error:
            self._break(f"the connection to {self._peer} broke: {error.strerror or error}")
            raise SubscriberUnreachable(self._broken) from None
        self._sent[self._seqid] = _Sent(self._seqid, service, method, on_reply)
        self._flush_soon()

    async def aclose(self) -> None:
        """Close at once. Calls without a reply fail with SubscriberUnreachable. Closing twice is fine."""
        self._closed = True
        self._break(f"the connection to {self._peer} was closed")
        await trio.lowlevel.checkpoint()

    async def _breaking(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run receiving or sending; what goes wrong in it breaks the connection."""
        try:
            await part()
        except ProtocolError as error:
            self._break(f"{self._peer} does not answer as a listener does: {error}")
        except OSError as error:
            self._break(f"the connection to {self._peer} broke: {error.strerror or error}")
        except trio.ClosedResourceError:
            pass  # whoever closed it said why

    def _flush_soon(self) -> None:
        """Have what is kept sent, if anything is: that is rare, and no task waits for it meanwhile."""
        if self._outbox.waiting and self._nursery is not None and not self._flushing:
            self._flushing = True
            self._nursery.start_soon(self._breaking, self._flush)

    async def _flush(self) -> None:
        """Send what was kept, and tell those who wait."""
        while self._outbox.waiting:
            await self._outbox.flush()
            self._tell_ready()
        self._flushing = False

    def _tell_ready(self) -> None:
        """Tell those who wait, until one has filled the socket again: then it is behind all others."""
        while self._waiting and not self._outbox.waiting:
            tell = next(iter(self._waiting))
            del self._waiting[tell]
            tell()

    async def _receive(self) -> None:
        buffer = FrameBuffer(REPLY_BYTES_MAX, _QUIET_BYTES)
        while True:
            while (frame := buffer.next_frame()) is not None:
                self._dispatch(frame)
            count = await receive_into(self._socket, buffer.space)
            if count == 0:
                raise OSError("the peer closed it")
            buffer.received(count)

    def _dispatch(self, frame: memoryview) -> None:
        if not self._sent:
            raise ProtocolError("a reply without a call")
        sent = self._sent.get(answered_call(frame)) or next(iter(self._sent.values()))
        reply = decode_reply(sent.service, sent.method, sent.seqid, frame)
        del self._sent[sent.seqid]
        sent.on_reply(reply)

    def _break(self, why: str) -> None:
        """Fail every call that has no reply, and all later ones; only the first reason counts. Who waits is told."""
        self._broken = self._broken or why
        self._socket.close()
        unanswered, self._sent = self._sent, {}
        for sent in unanswered.values():
            sent.on_reply(SubscriberUnreachable(self._broken))
        waiting, self._waiting = self._waiting, {}
        for tell in waiting:
            tell()


def _notice_dead_peer(connected: trio.socket.SocketType) -> None:
    """Have the kernel break the connection when the peer's machine is gone: a pulled cable sends no FIN.

    A slow or stopped program does not count: its kernel still answers.
    """
    wanted = {
        "TCP_KEEPIDLE": _DEAD_PEER_SECONDS // 2, "TCP_KEEPINTVL": _DEAD_PEER_SECONDS // 4, "TCP_KEEPCNT": 2,
        "TCP_USER_TIMEOUT": _DEAD_PEER_SECONDS * 1000,
    }  # fmt: skip
    connected.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1)
    for name, value in wanted.items():
        if hasattr(trio.socket, name):  # Linux has them all
            connected.setsockopt(trio.socket.IPPROTO_TCP, getattr(trio.socket, name), value)
