"""Where a region host connects to listeners: whoever subscribes names an address, and must not make it call any other.

Plain decisions on IP addresses. Without settings of its own a host refuses loopback, unless all of its engine is on
this machine; link-local networks, in which clouds keep their metadata; and what is no address of a machine.
"""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

from delivery.errors import ConfigError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

OWN_NAME: Final = ipaddress.IPv4Address("127.0.1.1")
"""What Debian resolves a machine's own name to: programs that listen on 127.0.0.1 are not reached by it."""

_METADATA: Final = (ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200"))
"""Of clouds, where they are not link-local."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class Networks(msgspec.Struct, frozen=True):
    """The networks of listeners, as a host has them and tells them in its record."""

    named: tuple[str, ...] = ()
    """CIDR blocks: these and nothing else. None for the default."""
    loopback: bool = True
    """By default: whether listeners may be on this machine's own addresses."""

    def refusal(self, address: IPAddress) -> str:
        """Why no listener may be at this address; empty when one may."""
        plain = _plain(address)
        if self.named:
            inside = any(plain in ipaddress.ip_network(name) for name in self.named)
            return "" if inside else f"it is outside of {', '.join(self.named)}"
        if plain.is_loopback:
            return "" if self.loopback else "it is a loopback address, and the engine is on several machines"
        if plain.is_link_local:
            return "it is a link-local address"
        if plain in _METADATA:
            return "a cloud answers there about its machines"
        if plain.is_unspecified or plain.is_multicast or plain == ipaddress.IPv4Address("255.255.255.255"):
            return "it is no address of one machine"
        return ""


def parse_networks(text: str) -> tuple[str, ...]:
    """`10.0.0.0/8,192.168.7.1` as blocks. Raises ConfigError naming every part that is none."""
    found, wrong = [], []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(str(ipaddress.ip_network(part)))
        except ValueError as error:
            wrong.append(f"{part[:60]!r} is no network ({error})")
    if wrong:
        raise ConfigError(f"listener_networks: {'; '.join(wrong)}; expected as in 10.0.0.0/8,fd00::/8")
    return tuple(found)


def as_address(text: str) -> IPAddress | None:
    """The IP address that is written there, None for a name."""
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return ipaddress.IPv4Address("127.0.0.1") if text.lower() == "localhost" else None


def host_port(address: str, port: int | None) -> str:
    """Both in one word, as a URL has them: an IPv6 address stands in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def is_loopback(text: str) -> bool:
    """Whether an address, or `localhost`, is one of this machine alone."""
    address = as_address(text)
    return address is not None and _plain(address).is_loopback


def _plain(address: IPAddress) -> IPAddress:
    """The IPv4 address that an IPv6 address stands for, or itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
