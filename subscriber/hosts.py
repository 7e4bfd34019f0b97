"""What registering asks other processes: a region host for the last id of a partition, a listener whether it lives."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

from delivery.errors import HootError, NoHost, ProtocolError
from delivery.metastore.catalog import Catalog
from delivery.metastore.live import LiveHosts, parse_address
from delivery.metastore.records import ListenerRecord
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.pool import Pool
from delivery.rpc.protocol import decode_reply, encode_call

log = logging.getLogger(__name__)

ASK_SECONDS: Final = 20.0
"""For one partition. Longer than a crashed host's session, within which another cannot take its partitions over."""
PROBE_SECONDS: Final = 1.0

_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 1.0
_HELLO_BYTES_MAX: Final = 64 * 1024


class Hosts:
    """The region hosts, as a subscriber needs them. Blocking; keeps no connection."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._live = LiveHosts(())

    @contextlib.contextmanager
    def asking(self, queue: str) -> Iterator[Callable[[int], int]]:
        """A function that gives the last id of a partition of `queue`, asking its owner.

        It raises NoHost when no host is registered, UnknownQueue, and the last retryable error of a host when none has
        the partition within ASK_SECONDS.
        """
        with contextlib.closing(Pool()) as pool:
            yield lambda partition: self._last_id(pool, queue, partition)

    def _last_id(self, pool: Pool, queue: str, partition: int) -> int:
        end, pause, told = time.monotonic() + ASK_SECONDS, 0.0, None
        while True:
            address = told or self._candidate(queue, partition)
            try:
                return int(pool.call(*address, "partitionInfo", queue, partition).lastId)
            except HootError as error:
                if not error.retryable or time.monotonic() > end:
                    raise
                log.debug("the last id of %s/%d is asked for again: %s", queue, partition, error)
                told = parse_address(error.address)
            self._live = LiveHosts(())
            if told is None or pause:  # the first hint of where the owner is, is followed at once
                time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _PAUSE_SECONDS_MAX) or _PAUSE_SECONDS

    def _candidate(self, queue: str, partition: int) -> tuple[str, int]:
        """The owner, if it lives, else any host: it will become the owner."""
        if not self._live.able:
            self._live = LiveHosts(self._catalog.readable_hosts()[0])
        if not self._live.able:
            raise NoHost("no region host is running: start one with `hoot serve`")
        owner, _ = self._catalog.partition(queue, partition)
        chosen = self._live.owner(owner) or random.choice(self._live.able)
        return chosen.address, chosen.port


def is_alive(listener: ListenerRecord, queue: str, subscription: str) -> bool:
    """Whether the listener answers at its address, or may be alive all the same; takes up to PROBE_SECONDS.

    It is not when nobody listens there, or somebody who does not know the token. Silence proves nothing.
    """
    try:
        return _hello(listener, queue, subscription) == listener.token
    except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, HootError):
        return False
    except OSError as error:
        log.info("the listener at %s does not answer: %s", listener.host_port, error)
        return True


def _hello(listener: ListenerRecord, queue: str, subscription: str) -> object:
    end = time.monotonic() + PROBE_SECONDS
    service = "Listener" if listener.protocol == "packed" else "PlainListener"
    parts, _ = encode_call(service, "hello", 1, (queue, subscription))
    buffer = FrameBuffer(_HELLO_BYTES_MAX)
    with socket.create_connection((listener.address, listener.port), PROBE_SECONDS) as probe:
        probe.sendall(b"".join(parts))
        while (frame := buffer.next_frame()) is None:
            probe.settimeout(max(end - time.monotonic(), 0.001))
            count = probe.recv_into(buffer.space())
            if count == 0:
                raise ProtocolError("the connection was closed instead of an answer")
            buffer.received(count)
        return decode_reply(service, "hello", 1, frame)
