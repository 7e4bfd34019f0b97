"""A blocking client on a plain socket, for publishers, scanners and Spark.

One thread may send while another receives; two threads must not both send, or both receive, at once (they would wait
for each other). Every wait has a deadline. Whatever interrupts a call in the middle (a deadline, a broken stream,
KeyboardInterrupt) breaks the connection, because the rest of a frame could be mistaken for another.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Final, Self, TypeVar

from delivery.errors import DeadlineExceeded, HootError, HostUnreachable, ProtocolError
from delivery.rpc.frames import FrameBuffer, joined, portion, rest
from delivery.rpc.protocol import FRAME_BYTES_MAX, decode_reply, encode_call

CONNECT_SECONDS: Final = 5.0
CALL_SECONDS: Final = 30.0
SERVICE: Final = "RegionHost"
_SEQID_MAX: Final = 2**31 - 1

T = TypeVar("T")


class BlockingConnection:
    """One connection to a region host. Close it when done; it is a context manager."""

    def __init__(
        self,
        address: str,
        port: int,
        *,
        connect_deadline: float = CONNECT_SECONDS,
        call_deadline: float = CALL_SECONDS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Connect within `connect_deadline` seconds. Raises HostUnreachable, DeadlineExceeded."""
        self.address, self.port = address, port
        self._call_deadline, self._frame_bytes_max = call_deadline, frame_bytes_max
        self._buffer = FrameBuffer(frame_bytes_max)
        self._sent: deque[tuple[int, str]] = deque()
        self._seqid = 0
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._broken = ""
        self._socket = _connect(address, port, connect_deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def usable(self) -> bool:
        """Whether another call may be tried: not closed, not broken, nothing unread that nobody asked for."""
        return not (self._broken or self._sent or self._buffer.partial or _ready(self._socket, select.POLLIN, 0))

    def call(self, method: str, *args: Any, deadline: float | None = None) -> Any:
        """Call and wait for the result, at most `deadline` seconds. Not while pipelined calls are under way.

        Raises the HootError that came back; DeadlineExceeded and HostUnreachable, after which the outcome is unknown
        and the connection broken; InvalidRequest, after which nothing was sent.
        """
        seconds = self._call_deadline if deadline is None else deadline
        end = monotonic() + seconds
        seqid = self.send(method, *args, deadline=seconds)
        with _WholeOrBroken(self):  # an interrupt between the two must not leave the reply behind
            answered, result = self.receive(deadline=max(0.0, end - monotonic()))
            assert answered == seqid
        if isinstance(result, HootError):
            raise result
        return result

    def send(self, method: str, *args: Any, deadline: float | None = None) -> int:
        """Send a call and give its sequence number; replies come in the order of the calls. Errors as `call`."""
        end = monotonic() + (self._call_deadline if deadline is None else deadline)
        with self._sending:
            self._check()
            self._seqid = self._seqid % _SEQID_MAX + 1
            seqid = self._seqid
            frame = encode_call(SERVICE, method, seqid, args, self._frame_bytes_max)
            with _WholeOrBroken(self):
                left = joined(*frame)
                self._sent.append((seqid, method))
                while left:
                    left = rest(left, self._wait(partial(self._socket.sendmsg, portion(left)), select.POLLOUT, end))
        return seqid

    def receive(self, deadline: float | None = None) -> tuple[int, Any]:
        """The sequence number of the oldest call without a reply, and its result or the HootError it failed with.

        Raises DeadlineExceeded and HostUnreachable, after which the connection is broken. There must be such a call.
        """
        end = monotonic() + (self._call_deadline if deadline is None else deadline)
        with self._receiving:
            self._check()
            seqid, method = self._sent[0]
            with _WholeOrBroken(self):
                while (frame := self._buffer.next_frame()) is None:
                    self._fill(end)
                result = decode_reply(SERVICE, method, seqid, frame)
                self._sent.popleft()
        return seqid, result

    def close(self) -> None:
        """Close; calls under way in other threads fail with HostUnreachable. Closing twice is fine."""
        self.broke("it was closed")
        with self._sending, self._receiving:  # so that no thread waits on a number that another file gets
            self._socket.close()

    def _fill(self, end: float) -> None:
        space = self._buffer.space()
        count = self._wait(partial(self._socket.recv_into, space), select.POLLIN, end)
        if count == 0:
            raise HostUnreachable(f"{self.address}:{self.port} closed the connection")
        self._buffer.received(count)

    def _wait(self, attempt: Callable[[], T], event: int, end: float) -> T:
        """The outcome of a system call that may have to wait for the socket."""
        while True:
            try:
                return attempt()
            except BlockingIOError:
                if not _ready(self._socket, event, end - monotonic()):
                    raise DeadlineExceeded(f"{self.address}:{self.port} did not answer in time") from None
            except OSError as error:
                raise HostUnreachable(f"the connection to {self.address}:{self.port} broke: {error}") from None

    def _check(self) -> None:
        if self._broken:
            raise HostUnreachable(f"the connection to {self.address}:{self.port} cannot be used: {self._broken}")

    def broke(self, why: str) -> None:
        """Wake whoever waits, and refuse all that follows. The file stays open until `close`."""
        self._broken = self._broken or why
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class _WholeOrBroken:
    """What is interrupted inside breaks the connection. A class, for a generator takes five times as long."""

    __slots__ = ("_connection",)

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            return
        self._connection.broke(str(error) or type(error).__name__)
        if isinstance(error, ProtocolError):  # another program may have got the port of a host that is gone
            peer = f"{self._connection.address}:{self._connection.port}"
            raise HostUnreachable(f"{peer} does not answer as a region host does: {error.message}") from None


def _connect(address: str, port: int, seconds: float) -> socket.socket:
    try:
        connected = socket.create_connection((address, port), seconds)
    except TimeoutError:
        raise DeadlineExceeded(f"{address}:{port} did not accept a connection in {seconds} s") from None
    except (OSError, OverflowError, ValueError) as error:  # no host can have such a name, or such a port
        raise HostUnreachable(f"cannot connect to {address}:{port}: {error}") from None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setblocking(False)
    return connected


def _ready(waited: socket.socket, event: int, seconds: float) -> bool:
    """Whether the event (or an error, which the next system call tells) came within `seconds`."""
    poll = select.poll()
    poll.register(waited, event)
    return bool(poll.poll(max(0.0, seconds) * 1000))
