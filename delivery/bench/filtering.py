"""What the case `filter` publishes: messages of two topics, `wanted` and `other`, of which a filter takes a part.

Without an expression the filter is the topic `wanted`, and bodies are random bytes. With one, bodies are JSON objects
`{"n": …, "pad": "…"}` with n from 0 to 999 in turn, so that `body.n < 10` takes one of a hundred.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import msgspec

from delivery.bench.checking import BenchFailed
from delivery.client import Queue
from delivery.client.publisher import Receipt
from delivery.filters import filter_asked, filter_of
from delivery.filters.explaining import row_of
from delivery.model import Message

STRETCH: Final = 4096
"""With `apart`, of so many messages the wanted ones come first, in a batch of their own."""
_BODIES: Final = 1000


class Mix(msgspec.Struct, frozen=True):
    """What is published, and which of it is wanted."""

    size: int
    messages: int
    selectivity: float
    """The share of the topic `wanted`."""
    expression: str | None
    apart: bool
    """Whether each topic has batches of its own."""

    @property
    def topics(self) -> list[str]:
        """The topics to subscribe to; none for all."""
        return [] if self.expression else ["wanted"]

    def publish(self, queue: Queue) -> tuple[list[Receipt], int]:
        """Publish; the receipts of what the filter takes, and how many messages are from its first to its last one."""
        bodies, taken = self._bodies(), self._taken()
        receipts: list[Receipt] = []
        first = last = 0
        before = None
        with queue.publisher() as publisher:
            for number, topic in enumerate(self._topics()):
                if self.apart and topic != before and before is not None:
                    publisher.flush()
                before = topic
                receipt = publisher.put(bodies[number % _BODIES], topic=topic)
                if (topic, number % _BODIES) in taken:
                    first, last = first if receipts else number, number
                    receipts.append(receipt)
        if not receipts:
            raise BenchFailed("no message was selected: use more --messages or a larger --selectivity")
        return receipts, last - first + 1

    def _topics(self) -> Iterator[str]:
        spread, share = random.Random(1), max(1, round(STRETCH * self.selectivity))
        for number in range(self.messages):
            wanted = number % STRETCH < share if self.apart else spread.random() < self.selectivity
            yield "wanted" if wanted else "other"

    def _bodies(self) -> list[bytes]:
        if self.expression is None:
            return [random.randbytes(self.size)] * _BODIES
        found = [msgspec.json.encode({"n": n, "pad": ""}) for n in range(_BODIES)]
        return [body[:-2] + b"x" * max(0, self.size - len(body)) + body[-2:] for body in found]

    def _taken(self) -> set[tuple[str, int]]:
        """The (topic, place of the body) that the filter takes."""
        rule = filter_asked(self.expression)
        chosen = filter_of(tuple(self.topics), rule if isinstance(rule, str) else None)
        assert chosen is not None, "there is a topic or an expression"
        return {
            (topic, place)
            for topic in ("wanted", "other")
            for place, body in enumerate(self._bodies())
            if chosen.takes(row_of(Message(0, body, topic, None, 0, "")))
        }
