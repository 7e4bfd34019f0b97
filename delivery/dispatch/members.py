"""The listeners of one subscription as its workers see them: a link to each, and for each partition the way to one.

A worker keeps its way for as long as it runs. Where the way turns to another member, the worker is recalled, and asks
it again for its next run: nothing else of the subscription is interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import trio

from delivery.config import HostConfig
from delivery.dispatch.lines import Lines
from delivery.dispatch.link import Link
from delivery.dispatch.plan import Attached
from delivery.dispatch.target import Target
from delivery.metastore.records import ListenerRecord


class Seat(msgspec.Struct, frozen=True):
    """A member that is there."""

    record: ListenerRecord
    link: Link


class Way:
    """To whoever gets a partition, for its worker."""

    __slots__ = ("_link", "_waiting", "holder")

    def __init__(self) -> None:
        self.holder: ListenerRecord | None = None
        self._link: Link | None = None
        self._waiting: trio.CancelScope | None = None
        """Around whoever waits for a target."""

    def turn(self, holder: ListenerRecord | None, link: Link | None) -> None:
        """It leads to another one from now on, or to nobody."""
        self.holder, self._link = holder, link
        if self._waiting is not None:
            self._waiting.cancel()

    @property
    def link(self) -> Link | None:
        """To the present holder, to be looked at."""
        return self._link

    async def target(self) -> Target:
        """The proven connection to the present holder; waits until there is one."""
        while True:
            with trio.CancelScope() as self._waiting:
                link = self._link
                target = await trio.sleep_forever() if link is None else await link.target()
                if link is self._link:  # it may have turned at this moment
                    return target


class Members:
    """Owns the links, which connect between `link` and `unlink`."""

    def __init__(self, attached: Attached, config: HostConfig, lines: Lines) -> None:
        self._config, self._lines = config, lines
        self._queue, self._name = attached.subscription.queue, attached.subscription.name
        self._linking = False
        self._links: dict[ListenerRecord, Link] = {}
        self._ways = {partition: Way() for partition in attached.subscription.starts}
        self.change(attached)

    def way(self, partition: int) -> Way:
        """For the worker of a partition."""
        return self._ways[partition]

    @property
    def seats(self) -> dict[str, Seat]:
        """Those that are there, by name."""
        return {record.member: Seat(record, link) for record, link in self._links.items()}

    def change(self, attached: Attached) -> Sequence[tuple[int, bool]]:
        """Know other members, or other holders; the partitions that move, and whether their former holders are there.

        Those that had no holder do not count as moved. The links of who is gone end.
        """
        present = set(attached.listeners)
        gone = [record for record in self._links if record not in present]
        for record in attached.listeners:
            if record not in self._links:
                self._add(record)
        holders, moved = attached.by_partition(), []
        for partition, way in self._ways.items():
            holder, before = holders.get(partition), way.holder
            if holder != before:
                way.turn(holder, None if holder is None else self._links[holder])
                if before is not None:
                    moved.append((partition, before in present))
        for record in gone:
            self._links.pop(record).end()
        return moved

    def link(self) -> None:
        """Connect to all of them, and to those that come."""
        self._linking = True
        for link in self._links.values():
            link.begin()

    def unlink(self) -> None:
        """Connect to nobody any more."""
        self._linking = False
        for link in self._links.values():
            link.end()

    def _add(self, record: ListenerRecord) -> None:
        self._links[record] = link = Link(self._queue, self._name, record, self._config, self._lines)
        if self._linking:
            link.begin()
