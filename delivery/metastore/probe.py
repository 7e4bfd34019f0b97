"""Waiting for a session, but not for servers that nobody runs, nor long for one that does not answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from threading import Event
from typing import Final, TypeVar

PATIENCE_SECONDS: Final = 1.0
"""How long refused connections are tried again, for a server that is just starting."""
PROBE_SECONDS: Final = 0.5

R = TypeVar("R")


def why_unanswered(opened: Event, servers: Sequence[tuple[str, int]], seconds: float) -> str | None:
    """Wait until a session is `opened`: None then, else why not. At most `seconds`, less when every server refuses."""
    end = time.monotonic() + seconds
    while not opened.wait(min(PATIENCE_SECONDS, max(0.0, end - time.monotonic()))):
        if time.monotonic() >= end:
            return f"within {seconds:g} s"
        if all_refuse(servers):
            return "(connection refused)"
    return None


def all_refuse(servers: Iterable[tuple[str, int]]) -> bool:
    """Whether nobody listens on any of them. A machine that does not answer, or a name that is unknown now, may yet.

    Ends at the first that does not refuse, for which each of its addresses is given half a second.
    """
    return all(_refuses(server) for server in servers)


def _refuses(server: tuple[str, int]) -> bool:
    try:
        socket.create_connection(server, PROBE_SECONDS, all_errors=True).close()
    except ExceptionGroup as failed:
        return all(isinstance(error, ConnectionRefusedError) for error in failed.exceptions)
    except OSError:  # of finding the addresses
        return False
    return False


def select_reply(
    seconds: float,
    select: Callable[..., R],
    readable: Sequence[object],
    writable: Sequence[object],
    failing: Sequence[object],
    timeout: float | None = None,
) -> R:
    """`select`, at most `seconds` when it is for one socket's reply.

    That is how kazoo waits for the answer to a handshake, and for the rest of any other; while it is at rest, it waits
    for its requests as well.
    """
    if len(readable) == 1 and timeout is not None:
        timeout = min(timeout, seconds)
    return select(readable, writable, failing, timeout)
