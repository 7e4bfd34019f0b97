"""Connecting to a listener in the networks that are allowed: its name is resolved once, and that address is used."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Final

import trio

from delivery.errors import HootError, ListenerRefused, SubscriberUnreachable
from delivery.networks import OWN_NAME, IPAddress, Networks, as_address
from delivery.rpc.connection import Connection

CONNECT_SECONDS: Final = 5.0
"""For all addresses of a name together."""
_NAMES_MAX: Final = 8
"""Addresses of one name that are tried."""


async def connect(networks: Networks, address: str, port: int) -> Connection:
    """Connect to a listener. Raises ListenerRefused, SubscriberUnreachable."""
    allowed = await allowed_addresses(networks, address)
    failure: HootError | None = None
    for one in allowed:
        try:
            return await Connection.open(one, port, deadline_seconds=CONNECT_SECONDS / len(allowed))
        except SubscriberUnreachable as error:
            failure = failure or error
    assert failure is not None, "there is an address"
    raise failure


async def allowed_addresses(networks: Networks, address: str) -> list[str]:
    """The IP addresses of a listener to which a connection may go. Raises ListenerRefused when none is allowed,
    SubscriberUnreachable for a name that cannot be resolved.
    """
    if (literal := _literal(address)) is not None:
        return _allowed([networks], address, [literal])
    try:
        found = await trio.socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _unresolved(address, error) from None
    return _allowed([networks], address, _addresses(found))


def allowed_now(networks: Sequence[Networks], address: str) -> list[str]:
    """As `allowed_addresses`, of what all of several networks allow, for a thread that may wait."""
    if (literal := _literal(address)) is not None:
        return _allowed(networks, address, [literal])
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _unresolved(address, error) from None
    return _allowed(networks, address, _addresses(found))


def refused(address: str, found: IPAddress, why: str, host: str = "this region host") -> ListenerRefused:
    """What whoever attaches is told."""
    shown = address if address == str(found) else f"{address}, which is {found}"
    return ListenerRefused(
        f"{host} connects to no listener at {shown[:120]}: {why}; give an address that hosts may use, or start hosts"
        " with --listener-networks"
    )


def _literal(address: str) -> IPAddress | None:
    """The address that is written there; None for a name, which is to be looked up."""
    return None if address.lower() == "localhost" else as_address(address)


def _allowed(networks: Sequence[Networks], address: str, found: Sequence[IPAddress]) -> list[str]:
    why = {one: next(filter(None, (each.refusal(one) for each in networks)), "") for one in found}
    allowed = [str(one) for one in found if not why[one] or _is_own(address, one)]
    if not allowed:
        raise refused(address, found[0], why[found[0]])
    return allowed[:_NAMES_MAX]


def _addresses(found: Iterable[tuple[object, ...]]) -> list[IPAddress]:
    """What a look-up gave, each once."""
    places = dict.fromkeys(str(one[4][0]) for one in found if isinstance(one[4], tuple))
    return [address for place in places if (address := as_address(place)) is not None]


def _unresolved(name: str, error: Exception) -> SubscriberUnreachable:
    return SubscriberUnreachable(f"the listener's address {name[:60]!r} cannot be resolved: {error}")


def _is_own(name: str, address: IPAddress) -> bool:
    return address == OWN_NAME and name.lower() in (socket.gethostname().lower(), socket.getfqdn().lower())
