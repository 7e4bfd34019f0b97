"""Where ZooKeeper is: `host:port,host:port/folder`, checked before anything connects."""

from __future__ import annotations

import re
from typing import Final

from delivery.errors import ConfigError

DEFAULT_PORT: Final = 2181
SERVERS_MAX: Final = 64

_SERVER = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}(?:%\w{1,15})?\])(?::(\d{1,5}))?\Z", re.ASCII)
_FOLDER = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._-]{1,249})*/?\Z", re.ASCII)


def split_hosts(hosts: str) -> tuple[str, str]:
    """The servers, each with its port, and the folder. Raises ConfigError naming every part that cannot be read.

    A server is a name or an address, IPv6 in brackets, with a port that is 2181 when left out. The folder is where all
    of Hoot's znodes are then kept; without one it is the root, and given as the empty string.
    """
    servers, slash, folder = hosts.strip().partition("/")
    folder = f"{slash}{folder}".rstrip("/")
    names = [name.strip() for name in servers.split(",")]
    wrong = [f"{name[:60]!r} is no server" for name in names if not _is_server(name)]
    if len(names) > SERVERS_MAX:
        wrong = [f"{len(names)} servers are more than {SERVERS_MAX}"]
    if not _FOLDER.match(folder):
        wrong.append(f"{folder[:60]!r} is no folder")
    if wrong:
        raise ConfigError(
            f"the ZooKeeper address cannot be used: {'; '.join(wrong)} (expected HOST:PORT[,HOST:PORT…][/FOLDER],"
            f" as in 127.0.0.1:{DEFAULT_PORT})"
        )
    return ",".join(name if re.search(r":\d+\Z", name) else f"{name}:{DEFAULT_PORT}" for name in names), folder


def _is_server(name: str) -> bool:
    found = _SERVER.match(name)
    if not found or any(not 0 < len(label) < 64 for label in name.partition(":")[0].split(".") if name[0] != "["):
        return False
    return found[1] is None or 0 < int(found[1]) < 65_536
