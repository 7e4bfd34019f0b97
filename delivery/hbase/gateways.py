"""Which of several Thrift gateways is asked next. Decisions alone: no clock and no socket of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delivery.errors import ConfigError

PORT_DEFAULT: Final = 9090
DELAY_SECONDS: Final = 0.5
"""A gateway that failed is passed over for so long; the time doubles with each failure in a row."""
DELAY_MAX_SECONDS: Final = 15.0

Address = tuple[str, int]


def parse_gateways(text: str, port_default: int = PORT_DEFAULT) -> list[Address]:
    """`host:port,host` as addresses, without a port that of gateways. Raises ConfigError that names all problems."""
    found, wrong = [], []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, _, port = part.rpartition(":") if ":" in part else (part, "", str(port_default))
        usable = host and not any(character.isspace() for character in host) and port.isdecimal()
        if usable and 0 < int(port) < 65_536:
            found.append((host, int(port)))
        else:
            wrong.append(f"{part[:60]!r} is no HOST:PORT")
    if not found and not wrong:
        wrong.append("no HBase Thrift gateway is named")
    if wrong:
        raise ConfigError("; ".join(wrong))
    return list(dict.fromkeys(found))


class _Gateway:
    __slots__ = ("failures", "until")

    def __init__(self) -> None:
        self.failures = 0
        self.until = 0.0


class Gateways:
    """The gateways in the order in which they are to be tried. Not thread-safe: the pool holds its lock."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        """At least one address."""
        assert addresses
        self._known = {address: _Gateway() for address in addresses}

    def next(self, lent: dict[Address, int], now: float) -> Address:
        """The gateway for a new connection: of those that are not passed over the one with the fewest `lent` out.

        When all are passed over, the one whose time is up first: somebody has to find out that it is back.
        """
        due = [address for address, gateway in self._known.items() if gateway.until <= now]
        if due:
            return min(due, key=lambda address: lent.get(address, 0))
        return min(self._known, key=lambda address: self._known[address].until)

    def failed(self, address: Address, now: float) -> None:
        """A connection to it could not be made, or broke."""
        gateway = self._known[address]
        gateway.until = now + min(DELAY_MAX_SECONDS, DELAY_SECONDS * 2**gateway.failures)
        gateway.failures = min(gateway.failures + 1, 10)

    def worked(self, address: Address) -> None:
        """It answered."""
        gateway = self._known[address]
        gateway.failures, gateway.until = 0, 0.0

    def good(self, address: Address, now: float) -> bool:
        """Whether it is not passed over now."""
        return self._known[address].until <= now
