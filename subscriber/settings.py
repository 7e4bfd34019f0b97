"""Every setting of a subscriber, with its default and the reason for it. Sizes are in bytes, times in seconds."""

from __future__ import annotations

import re
import secrets
import socket
from typing import Final

import msgspec

from delivery.errors import ConfigError
from delivery.model import check_name
from delivery.rpc.protocol import FRAME_BYTES_MAX
from delivery.rpc.serving import ServerLimits
from delivery.rpc.sharing import PUSH_BYTES_MAX, PUSHES_MAX

_IDLE_SECONDS: Final = 86_400.0
"""A region host keeps its connection also while there is nothing to push."""
ZOOKEEPER_DEFAULT: Final = "127.0.0.1:2181"
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - not listened on here, but recognised

_NOT_IN_HOSTS: Final = set(" \t\r\n\0/")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an application may choose; call `check` before using it."""

    name: str
    zookeeper: str = ZOOKEEPER_DEFAULT
    """`host:port,host:port/folder`."""
    host: str = "127.0.0.1"
    """Listened on, and registered for region hosts to connect to. Loopback, because there is no authentication yet."""
    port: int = 0
    """0 takes a free one; region hosts find it through ZooKeeper."""
    advertise: str | None = None
    """Registered instead of `host`, where region hosts reach this machine by another name or address."""
    force: bool = False
    """Take a subscription, or the place of this member in a group, over from a subscriber that is alive."""
    member: str | None = None
    """The name in groups; None makes up one. Whoever comes again under the same one finds its partitions kept."""
    grace_seconds: float = 10.0
    """How long `stop` waits for the callback under way."""
    session_timeout_seconds: float = 6.0
    """How long after a crash ZooKeeper still shows this subscriber as attached. A restart need not wait for it."""
    connections_max: int = 256
    """Region hosts, one connection each, and their questions; more are closed at once."""

    def check(self) -> Settings:
        """These settings if all can be used. Raises InvalidRequest for the names, ConfigError for everything else."""
        check_name("subscription", self.name)
        if self.member is not None:
            check_name("member", self.member)
        wrong = [
            f"{name} must be {low:g} to {high:g}, not {value!r}"
            for name, (low, high) in _RANGES.items()
            if not _within(value := getattr(self, name), low, high)
        ]
        for name in ("host", "advertise"):
            given: object = getattr(self, name)
            if given is not None and (not isinstance(given, str) or len(given) > 253 or set(given) & _NOT_IN_HOSTS):
                wrong.append(f"{name} must be a host name or an IP address, not {str(given)[:60]!r}")
        if not str(self.zookeeper or "").strip():
            wrong.append("zookeeper must name at least one host:port")
        if wrong:
            raise ConfigError("; ".join(wrong))
        return self

    def member_name(self) -> str:
        """The name in groups: the given one, or this machine's name with something that no other has."""
        machine = re.sub(r"[^A-Za-z0-9_-]", "", socket.gethostname().partition(".")[0])[:40]
        return self.member or f"{machine or 'member'}-{secrets.token_hex(4)}"

    @property
    def limits(self) -> ServerLimits:
        """Of what region hosts ask of it; the pipeline's are for each subscription, of which a connection has them all.

        A host keeps to less. What it may be asked to hold for one it does not count, such as `hello`, has room, too.
        """
        return ServerLimits(
            connections_max=self.connections_max, pipeline_max=2 * PUSHES_MAX,
            pipeline_bytes_max=PUSH_BYTES_MAX + 2 * FRAME_BYTES_MAX, idle_seconds=_IDLE_SECONDS, in_order=False,
        )  # fmt: skip

    @property
    def registered_address(self) -> str:
        """Where region hosts connect to."""
        if self.advertise:
            return self.advertise
        return socket.gethostname() if self.host in _ANY_ADDRESS else self.host


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "port": (0, 65535),
    "grace_seconds": (0, 3600),
    "session_timeout_seconds": (1, 600),
    "connections_max": (1, 100_000),
}


def _within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
