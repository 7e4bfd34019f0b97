"""A tree of znodes in memory: what ZooKeeper promises and where it breaks, for tests that need neither its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from delivery.errors import HootError, MetadataUnavailable
from delivery.metastore.ops import Op, Refused, check_path, check_request
from delivery.metastore.watches import Kind
from delivery.metastore.znodes import Aspect, ZNodes
from delivery.testing.znodes import Tree

LISTING_BYTES_MAX = 1_048_575


class FakeZNodes(ZNodes):
    """A session on a tree. It can be cut off, lose answers, and counts what it is asked for."""

    def __init__(self, tree: Tree | None = None) -> None:
        self.tree = tree or Tree()
        self.reads = 0
        self.transactions: list[Sequence[Op]] = []
        self.failing: HootError | None = None
        """What everything raises, nothing done."""
        self.before: Callable[[], object] | None = None
        """Called once, before the next transaction."""
        self.lose_answer: HootError | None = None
        """The next transaction is done, and this is raised."""

    def watch_value(self, path: str, hint: Callable[[], None]) -> None:
        with self.tree.lock:
            self.tree.hints.setdefault(("value", check_path(path)), []).append(hint)
        hint()

    def unwatch(self, path: str, hint: Callable[[], None] | None = None) -> None:
        with self.tree.lock:
            key: tuple[Kind, str] = ("value", path)
            self.tree.hints[key] = [one for one in self.tree.hints.get(key, []) if hint is not None and one != hint]

    def _read(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        self.reads += 1
        self._check()
        with self.tree.lock:
            return [self._one(aspect, check_path(path)) for path in paths]

    def _one(self, aspect: Aspect, path: str) -> Any:
        if aspect == "value" or path not in self.tree.nodes:
            return self.tree.nodes.get(path)
        names = self.tree.children[path]
        assert sum(len(name) + 4 for name in names) + 100 < LISTING_BYTES_MAX, f"the listing of {path} is too large"
        return list(names)

    def _transact(self, ops: Sequence[Op]) -> list[int] | Refused:
        check_request(ops)
        step, self.before = self.before, None
        if step is not None:
            step()
        self._check()
        self.transactions.append(ops)
        with self.tree.lock:
            outcome = self.tree.transact(ops)
            hints = [] if isinstance(outcome, Refused) else self.tree.concerned(ops)
        for hint in hints:
            hint()
        lost, self.lose_answer = self.lose_answer, None
        if lost is not None:
            raise lost
        return outcome

    def _check(self) -> None:
        if self.failing is not None:
            raise self.failing


def cut_off() -> MetadataUnavailable:
    """What a session without a connection says."""
    return MetadataUnavailable("no connection to ZooKeeper")
