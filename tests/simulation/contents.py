"""What a partition on the simulated disk holds, message by message, read as it grows."""

from __future__ import annotations

from bisect import bisect_right

from delivery.batch import open_batch
from tests.simulation.disk import Shelf


class Contents:
    """The messages that count. Rows are only ever added; what came too late is not there."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._read = 0
        self._bodies: dict[int, bytes] = {}
        self._ids: dict[tuple[str, ...], list[int]] = {}
        self._topics: list[tuple[int, str]] = []

    @property
    def last_id(self) -> int:
        """The highest id."""
        return self.shelf.last_id

    def body(self, number: int) -> bytes | None:
        """The body of the message with an id."""
        self._catch_up()
        return self._bodies.get(number)

    def bodies(self) -> list[bytes]:
        """All, in order."""
        return [body for row in self.shelf.rows for body in open_batch(row.batch).bodies()]

    def next(self, after: int, topics: tuple[str, ...]) -> int | None:
        """The first id above `after` of one of the topics, of any when there are none."""
        self._catch_up()
        ids = self._ids.get(topics)
        if ids is None:
            ids = self._ids[topics] = [number for number, topic in self._topics if not topics or topic in topics]
        place = bisect_right(ids, after)
        return ids[place] if place < len(ids) else None

    def _catch_up(self) -> None:
        while self._read < len(self.shelf.rows):
            for message in open_batch(self.shelf.rows[self._read].batch).messages("queue"):
                self._bodies[message.number] = message.body
                self._topics.append((message.number, message.topic))
                for topics, ids in self._ids.items():
                    if not topics or message.topic in topics:
                        ids.append(message.number)
            self._read += 1
