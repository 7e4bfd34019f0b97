"""The rows of a batch in the making, kept as columns.

Most batches hold bodies under one topic and nothing else. For those only the bodies are kept: one reference per message
and no object that the garbage collector has to follow. The other columns come into being with the first row that needs
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from delivery.batch.encode import Columns, Row, assemble, assemble_plain


class Rows:
    """Rows in order. Whoever fills it by hand appends to `bodies` only while `plain` equals the row's topic."""

    __slots__ = ("_blocks", "_keys", "_topics", "bodies", "plain")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.plain: str | None = None
        """The topic of all rows, while none has a key or headers; None otherwise and when there are no rows."""
        self._keys: list[bytes | None] = []
        self._topics: list[str] = []
        self._blocks: list[bytes] = []

    def __len__(self) -> int:
        return len(self.bodies)

    def append(self, row: Row) -> None:
        """Add a row behind the others."""
        body, key, topic, block = row
        if key is None and not block and (self.plain == topic or not self.bodies):
            self.plain = topic
        else:
            if self.plain is not None:
                self._widen(self.plain)
            self._keys.append(key)
            self._topics.append(topic)
            self._blocks.append(block)
        self.bodies.append(body)

    def extend(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Add rows that have a body and this topic alone, behind the others."""
        if self.plain == topic or not self.bodies:
            self.plain = topic
        else:
            if self.plain is not None:
                self._widen(self.plain)
            count = len(bodies)
            self._keys += [None] * count
            self._topics += [topic] * count
            self._blocks += [b""] * count
        self.bodies += bodies

    def encode(self, partition: int, producer_id: int, producer_sequence: int) -> bytes:
        """The rows as a batch (see `encode.encode`); there must be at least one."""
        if self.plain is not None:
            return assemble_plain(self.plain, self.bodies, partition, producer_id, producer_sequence)
        columns = Columns(self._topics, self._keys, self._blocks, self.bodies)
        return assemble(columns, partition, producer_id=producer_id, producer_sequence=producer_sequence)

    def _widen(self, topic: str) -> None:
        count = len(self.bodies)
        self._keys, self._topics, self._blocks = [None] * count, [topic] * count, [b""] * count
        self.plain = None
