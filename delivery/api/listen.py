"""Taking the ports of a host, with an error that tells what to do when one is taken."""

from __future__ import annotations

import errno
import socket
from typing import Final

from delivery.errors import ConfigError, PortInUse

_BACKLOG: Final = 1024


def bind(address: str, port: int, setting: str) -> socket.socket:
    """A listening socket on `address` and `port` (0: a free one), for whoever calls it to close.

    `setting` names the option to change, for the error. Raises PortInUse when another program has the port, ConfigError
    when this machine does not have the address or does not allow it.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError(f"cannot listen on {address!r}: {error.strerror}") from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart need not wait for old connections
        listening.bind(place)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{address}:{port} is taken by another program: choose another {setting}, or 0 for a free one"
            ) from error
        raise ConfigError(f"cannot listen on {address}:{port}: {error.strerror or error}") from error
    return listening
