"""What happened in a run, in order: the matter of the checker and of whoever looks for the cause of a failure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple


class Entry(NamedTuple):
    """One thing that happened."""

    at: float
    """Virtual seconds since the start."""
    kind: str
    who: str
    facts: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.at:9.4f}  {self.who:<12} {self.kind:<14} {' '.join(map(_short, self.facts))}"


class History:
    """Entries in the order in which they happened."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.listeners: list[Callable[[Entry], None]] = []
        """Told of each entry at once."""

    def add(self, at: float, kind: str, who: str, facts: tuple[object, ...]) -> None:
        """One more."""
        entry = Entry(at, kind, who, facts)
        self.entries.append(entry)
        for listen in self.listeners:
            listen(entry)

    def digest(self) -> str:
        """Equal for equal histories."""
        return hashlib.blake2b(repr(self.entries).encode(), digest_size=16).hexdigest()


def _short(fact: object) -> str:
    text = fact.decode("ascii", "replace") if isinstance(fact, bytes) else str(fact)
    return text if len(text) <= 160 else f"{text[:157]}..."
