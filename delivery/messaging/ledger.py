"""What a reader of a partition has to know of what lies elsewhere in it: rollbacks behind, and stored bodies before.

It follows from the log alone and is read from it, so a new owner of the partition comes to the same. Whoever uses it
feeds it with the batches aside first, up to the end of the partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from delivery.messaging.marks import ROLLBACK, STORED, Range, Rollback, pointer_in, read_rollback
from delivery.model import Message

Note = TypeVar("Note", Range, Rollback)


class Ledger:
    """The rollbacks and the stored bodies of one partition, up to a position. Not thread-safe."""

    def __init__(self) -> None:
        self.position = 0
        """Everything up to this number was noted."""
        self._groups: dict[int, deque[Range]] = {}
        self._rollbacks: dict[int, deque[Rollback]] = {}
        self._order: deque[tuple[int, Callable[[], None]]] = deque()

    def __len__(self) -> int:
        """How many notes there are."""
        return len(self._order)

    def note(self, message: Message) -> None:
        """A message aside, in the order of the log; other kinds than rollbacks and stored bodies are fine."""
        if message.topic == ROLLBACK:
            what = read_rollback(message.body)
            self._rollbacks.setdefault(what.pointer, deque()).append(what)
            self._order.append((message.number, lambda: _drop_first(self._rollbacks, what.pointer)))
        elif message.topic == STORED and (pointer := pointer_in(message.header_block)) is not None:
            self._note_stored(message.number, pointer)

    def group(self, pointer: int) -> list[Range]:
        """The bodies that were stored under a pointer, in order."""
        return list(self._groups.get(pointer, ()))

    def has_rolled_back(self, pointer: int) -> bool:
        """Whether anything under the pointer was taken back."""
        return pointer in self._rollbacks

    def is_rolled_back(self, pointer: int, number: int) -> bool:
        """Whether a message with that number, published under the pointer, was taken back."""
        return any(one.first <= number <= one.last for one in self._rollbacks.get(pointer, ()))

    def forget(self, before: int) -> None:
        """Drop what lies below that number as a whole: no reader gets so far back any more."""
        while self._order and self._order[0][0] < before:
            self._order.popleft()[1]()

    def _note_stored(self, number: int, pointer: int) -> None:
        group = self._groups.setdefault(pointer, deque())
        if group and group[-1].last + 1 == number:
            group[-1] = Range(group[-1].first, group[-1].messages + 1)
            self._order.pop()  # what it goes on with was noted last
        else:
            group.append(Range(number, 1))
        self._order.append((number, lambda: _drop_first(self._groups, pointer)))


def _drop_first(kept: dict[int, deque[Note]], pointer: int) -> None:
    kept[pointer].popleft()
    if not kept[pointer]:
        del kept[pointer]
