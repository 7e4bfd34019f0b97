"""Loopback ports: which are free, and whether the ZooKeeper of a folder answers on one."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from pathlib import Path

from delivery.embedded.server import LOOPBACK
from delivery.errors import ConfigError, EmbeddedError, PortInUse

# Below the range from which systems take the ports of outgoing connections (32768 on Linux, 49152 elsewhere): a client
# that keeps trying a port in that range, with nobody listening, can end up connected to itself and hold the port.
_PORTS = range(20_000, 32_768)
_TRIES = 100

_PROBE_SECONDS = 0.5
_ANSWER_BYTES_MAX = 4_096


def check_free(port: int) -> None:
    """Raise `PortInUse` when another program has the port, `ConfigError` when this one may not have it."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as ZooKeeper does: old connections may linger
        try:
            trial.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise port_in_use(port) from None
            raise ConfigError(f"cannot listen on port {port}: {error.strerror or error}") from error


def port_in_use(port: int) -> PortInUse:
    """The error for a port that somebody else has."""
    return PortInUse(f"{LOOPBACK}:{port} is taken by another program; choose another port, or none to get a free one")


def free_port(preferred: int | None) -> int:
    """The preferred port if it is free, else any free one. Raises `EmbeddedError` if none was found."""
    for port in (preferred, *random.sample(_PORTS, _TRIES)):
        if port is not None and 0 < port < 65_536:
            with contextlib.suppress(PortInUse, ConfigError):
                check_free(port)
                return port
    raise EmbeddedError(f"no free port found on {LOOPBACK} between {_PORTS.start} and {_PORTS.stop - 1}")


def answers(port: int, data: Path) -> bool:
    """Whether the ZooKeeper on that port is well *and* works in that folder: another may have come first."""
    return _ask(port, b"ruok", (b"imok",)) == b"imok" and _data_folder(port) == data.resolve()


def _data_folder(port: int) -> Path | None:
    for line in _ask(port, b"conf", (b"serverId=0\n", b"not currently serving requests\n")).splitlines():
        name, _, value = line.partition(b"=")
        if name == b"dataDir":  # with ZooKeeper's own version-2 at its end
            return Path(value.decode(errors="replace")).resolve().parent
    return None


def _ask(port: int, word: bytes, endings: tuple[bytes, ...]) -> bytes:
    """One four-letter word's answer, empty without one.

    It is over with one of the endings: the connection does not end when the question comes before ZooKeeper has
    opened its database.
    """
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), _PROBE_SECONDS) as connection:
        connection.settimeout(_PROBE_SECONDS)
        connection.sendall(word)
        while not answer.endswith(endings) and len(answer) < _ANSWER_BYTES_MAX:
            piece = connection.recv(_ANSWER_BYTES_MAX)
            if not piece:
                break
            answer += piece
    return answer
