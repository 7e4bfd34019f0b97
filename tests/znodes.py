"""A tree of znodes in memory: what ZooKeeper promises and where it breaks, for tests that need neither its process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from delivery.errors import BadVersion, HootError, MetadataUnavailable
from delivery.metastore.ops import (
    ANY_VERSION,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Refused,
    Set,
    check_path,
    check_request,
)
from delivery.metastore.znodes import Aspect, ZNodes

LISTING_BYTES_MAX = 1_048_575


class Tree:
    """The znodes, shared by the sessions of a test."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, tuple[bytes, int]] = {"": (b"", 0)}
        self.children: dict[str, set[str]] = {"": set()}
        self.hints: dict[str, list[Callable[[], None]]] = {}

    def check(self, op: Op) -> HootError | None:
        """Why `op` cannot be applied now."""
        parent = op.path.rpartition("/")[0]
        if isinstance(op, Create):
            if parent not in self.nodes:
                return NoNode(f"{parent} is not there")
            return NodeExists(f"{op.path} is there already") if op.path in self.nodes else None
        if op.path not in self.nodes:
            return NoNode(f"{op.path} is not there")
        if op.version not in (ANY_VERSION, self.nodes[op.path][1]):
            return BadVersion(f"{op.path} was changed by somebody else")
        return NotEmpty(f"{op.path} has children") if isinstance(op, Delete) and self.children[op.path] else None

    def apply(self, op: Op) -> int:
        """Apply what `check` allows."""
        parent, _, name = op.path.rpartition("/")
        if isinstance(op, Create):
            self.nodes[op.path] = (op.value, 0)
            self.children[op.path] = set()
            self.children[parent].add(name)
        elif isinstance(op, Set):
            self.nodes[op.path] = (op.value, self.nodes[op.path][1] + 1)
            return self.nodes[op.path][1]
        elif isinstance(op, Delete):
            del self.nodes[op.path], self.children[op.path]
            self.children[parent].discard(name)
        return 0

    def restore(self, path: str, node: tuple[bytes, int] | None) -> None:
        """Undo what an operation did to a path."""
        parent, _, name = path.rpartition("/")
        if node is None:
            self.nodes.pop(path, None)
            self.children.pop(path, None)
            self.children[parent].discard(name)
        else:
            self.nodes[path] = node
            self.children.setdefault(path, set())
            self.children[parent].add(name)


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
            self.tree.hints.setdefault(check_path(path), []).append(hint)
        hint()

    def unwatch(self, path: str, hint: Callable[[], None] | None = None) -> None:
        with self.tree.lock:
            self.tree.hints[path] = [one for one in self.tree.hints.get(path, []) if hint is not None and one != hint]

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
            outcome = self._apply_all(ops)
            hints = [] if isinstance(outcome, Refused) else [
                hint for op in ops if isinstance(op, Create | Set | Delete) for hint in self.tree.hints.get(op.path, [])
            ]  # fmt: skip
        for hint in hints:
            hint()
        lost, self.lose_answer = self.lose_answer, None
        if lost is not None:
            raise lost
        return outcome

    def _apply_all(self, ops: Sequence[Op]) -> list[int] | Refused:
        undo: list[tuple[str, tuple[bytes, int] | None]] = []
        results = []
        for index, op in enumerate(ops):
            error = self.tree.check(op)
            if error is not None:
                for path, node in reversed(undo):
                    self.tree.restore(path, node)
                return Refused(index, error)
            undo.append((op.path, self.tree.nodes.get(op.path)))
            results.append(self.tree.apply(op))
        return results

    def _check(self) -> None:
        if self.failing is not None:
            raise self.failing


def cut_off() -> MetadataUnavailable:
    """What a session without a connection says."""
    return MetadataUnavailable("no connection to ZooKeeper")
