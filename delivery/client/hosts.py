"""Which region host to ask about a partition: the owners in ZooKeeper, cached, and what to do when one is not.

Ownership is ZooKeeper's to say and the hosts' to enforce; what is cached here is only a guess that saves a look. A host
that does not own the partition names the owner (NotOwner); that is followed at most twice and never to a host that was
asked in this round, then ZooKeeper is asked again after a pause. An owner that cannot be reached, twice, may be dead
and registered still: another host is asked then, which looks for itself, and takes the partition or names the owner.
There may be more of the dead (a machine that lost its power and starts again): who could not be reached is asked last,
and none of them costs more than one attempt.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection
from time import monotonic
from typing import Final, Protocol

from delivery.errors import (
    CorruptRecord,
    DeadlineExceeded,
    HootError,
    HostUnreachable,
    MetadataUnavailable,
    NoHost,
    NotOwner,
    ServiceStopping,
    StorageUnavailable,
    again,
)
from delivery.metastore.live import Address, LiveHosts, parse_address
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord

REDIRECTS_MAX: Final = 2
PAUSE_SECONDS: Final = 0.02
PAUSE_SECONDS_MAX: Final = 1.0
SILENCE_SECONDS: Final = 0.5
UNREACHABLE_SECONDS: Final = 5.0
"""For so long a host that could not be reached is asked after all others."""
DEAD_FAILURES: Final = 2
"""Attempts to reach an owner before another host is asked."""

# After these another host has the partition, or will: one that lost its ZooKeeper session, or its disk, says so as long
# as it lives, and only ZooKeeper tells who serves in its place.
_LOOK_AGAIN: Final = (
    HostUnreachable, DeadlineExceeded, NoHost, MetadataUnavailable, ServiceStopping, StorageUnavailable,
)  # fmt: skip


class OwnerCatalog(Protocol):
    """The part of the catalog that tells who owns what."""

    def readable_owners(self, queue: str) -> tuple[dict[int, OwnerInfo], list[CorruptRecord]]:
        """The owned partitions of a queue, and what cannot be read, of which the host that is asked says so."""

    def partition(self, queue: str, partition: int) -> tuple[OwnerInfo | None, int]:
        """The owner's record of one partition."""

    def readable_hosts(self) -> tuple[list[HostRecord], list[CorruptRecord]]:
        """The live hosts, and what cannot be read: a damaged record is no reason not to ask the others."""


class Owners:
    """The cache. Thread-safe; looking up blocks on ZooKeeper."""

    def __init__(self, catalog: OwnerCatalog, choose: random.Random | None = None) -> None:
        self._catalog = catalog
        self._random = choose or random.Random()
        self._lock = threading.Lock()
        self._known: dict[str, dict[int, Address]] = {}
        self._silence: tuple[MetadataUnavailable, float] | None = None
        """ZooKeeper did not answer, and until when that is believed: each partition would wait for it in turn."""
        self._unreachable: dict[Address, float] = {}
        """Who could not be reached, and until when that counts."""

    def address(
        self, queue: str, partition: int, avoid: Address | None = None, dead: Collection[Address] = ()
    ) -> Address:  # fmt: skip
        """The owner's address, or without one any live host's: that host claims the partition or names the owner.

        Of several live hosts not `avoid`, and those last that could not be reached. An owner at one of `dead` counts as
        none. Raises NoHost, MetadataUnavailable, UnknownQueue.
        """
        if (found := self.known(queue, partition)) is not None:
            return found
        with self._lock:
            loaded, silence = queue in self._known, self._silence
        if silence is not None and monotonic() < silence[1]:
            raise again(silence[0])
        try:
            live, owners = self._look(queue, partition if loaded else None)
        except MetadataUnavailable as error:
            self._silence = error, monotonic() + SILENCE_SECONDS
            raise
        serving = {number: live.owner(owner) for number, owner in owners.items()}
        addresses = {number: (host.address, host.port) for number, host in serving.items() if host is not None}
        if partition not in addresses or addresses[partition] in dead:
            addresses[partition] = self._any(live, avoid)
        with self._lock:
            self._known.setdefault(queue, {}).update(addresses)
        return addresses[partition]

    def known(self, queue: str, partition: int) -> Address | None:
        """What `address` would give without a look at ZooKeeper."""
        with self._lock:
            return self._known.get(queue, {}).get(partition)

    def may_serve(self, queue: str, partition: int, address: Address) -> bool:
        """Whether a host that is silent can still be the partition's owner: it lives, and no other host is recorded.

        Asks ZooKeeper. Raises MetadataUnavailable.
        """
        live, owners = self._look(queue, partition)
        host, owner = live.at(address), live.owner(owners.get(partition))
        return host is not None and owner in (None, host)

    def learn(self, queue: str, partition: int, address: Address) -> None:
        """A host named the owner."""
        with self._lock:
            self._known.setdefault(queue, {})[partition] = address

    def unreachable(self, address: Address) -> None:
        """Nobody was to be reached there."""
        now = monotonic()
        with self._lock:
            self._unreachable = {one: until for one, until in self._unreachable.items() if until > now}
            self._unreachable[address] = now + UNREACHABLE_SECONDS

    def forget(self, queue: str, partition: int) -> None:
        """What is known of a partition was wrong: look again."""
        with self._lock:
            self._known.get(queue, {}).pop(partition, None)

    def forget_queue(self, queue: str) -> None:
        """The queue is another one now, or gone."""
        with self._lock:
            self._known.pop(queue, None)

    def _look(self, queue: str, partition: int | None) -> tuple[LiveHosts, dict[int, OwnerInfo]]:
        """The live hosts, and the owner of one partition or of all."""
        live = LiveHosts(self._catalog.readable_hosts()[0])
        if partition is None:
            return live, self._catalog.readable_owners(queue)[0]
        record = self._catalog.partition(queue, partition)[0]
        return live, {} if record is None else {partition: record}

    def _any(self, live: LiveHosts, avoid: Address | None) -> Address:
        if not live.able:
            raise NoHost("no region host is registered in this ZooKeeper; start one with `hoot serve`")
        addresses = sorted((record.address, record.port) for record in live.able)
        others = [one for one in addresses if one != avoid] or addresses
        with self._lock:
            silent, now = self._unreachable, monotonic()
        return self._random.choice([one for one in others if silent.get(one, now) <= now] or others)


class Route:
    """The way to one partition's owner, for one caller. After each failure it says how long to pause."""

    __slots__ = ("_asked", "_at", "_failures", "_owners", "_partition", "_queue", "_unreached")

    def __init__(self, owners: Owners, queue: str, partition: int) -> None:
        self._owners, self._queue, self._partition = owners, queue, partition
        self._asked: list[Address] = []
        """Hosts that were not the owner, in this round."""
        self._at: Address | None = None
        self._unreached = Counter[Address]()
        """Where nobody was to be reached, and how often since the owner answered."""
        self._failures = 0

    def address(self) -> Address:
        """Where to send now. Errors as `Owners.address`."""
        dead = [one for one, failures in self._unreached.items() if failures >= DEAD_FAILURES]
        self._at = self._owners.address(self._queue, self._partition, self._at, dead)
        return self._at

    def arrived(self) -> None:
        """The host answered as the owner."""
        if self._failures or self._asked or self._unreached:
            self._failures = 0
            self._asked.clear()
            self._unreached.clear()

    def failed(self, error: HootError) -> float:
        """How many seconds to pause before asking `address` again."""
        if isinstance(error, NotOwner):
            if self._follow(error.address):
                return 0.0
            self._forget()
        elif isinstance(error, _LOOK_AGAIN):
            self._forget()
        if not self._new_silence(error):
            self._failures += 1
        pause = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2.0 ** min(self._failures, 16))
        return float(pause * random.uniform(0.5, 1.0))

    def _new_silence(self, error: HootError) -> bool:
        """Whether a host could not be reached that was not asked in vain before: then another one may do as well."""
        if self._at is None or not isinstance(error, HostUnreachable):
            return False
        self._owners.unreachable(self._at)
        self._unreached[self._at] += 1
        return self._unreached[self._at] == 1

    def _follow(self, text: str | None) -> bool:
        named = parse_address(text)
        if self._at is not None:
            self._asked.append(self._at)
        if named is None or named in self._asked or len(self._asked) > REDIRECTS_MAX:
            return False
        self._owners.learn(self._queue, self._partition, named)
        return True

    def _forget(self) -> None:
        self._owners.forget(self._queue, self._partition)
        self._asked.clear()


def retried(
    route: Route, attempt: Callable[[Address, float], object], deadline: float, clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> object:  # fmt: skip
    """What `attempt(address, seconds left)` gives, tried again after errors that may go away until the deadline.

    Raises the last error then, and any other at once.
    """
    while True:
        try:
            found = attempt(route.address(), max(0.001, deadline - clock()))
        except HootError as error:
            pause = route.failed(error)
            if not error.retryable or clock() + pause >= deadline:
                raise
            sleep(pause)
        else:
            route.arrived()
            return found
