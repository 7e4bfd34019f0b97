"""A tree of znodes in memory, and sessions on it: what the engine keeps in ZooKeeper, without a ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from delivery.errors import BadVersion, HootError
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
from delivery.metastore.state import State, StateCallback
from delivery.metastore.watches import Hint, Kind
from delivery.metastore.znodes import Aspect, ZNodes


class Tree:
    """The znodes, shared by all sessions."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, tuple[bytes, int]] = {"": (b"", 0)}
        self.children: dict[str, set[str]] = {"": set()}
        self.hints: dict[tuple[Kind, str], list[Hint]] = {}

    def transact(self, ops: Sequence[Op]) -> list[int] | Refused:
        """Apply all, or none; nobody is told."""
        undo: list[tuple[str, tuple[bytes, int] | None]] = []
        results = []
        for index, op in enumerate(ops):
            error = self._check(op)
            if error is not None:
                for path, node in reversed(undo):
                    self._restore(path, node)
                return Refused(index, error)
            undo.append((op.path, self.nodes.get(op.path)))
            results.append(self._apply(op))
        return results

    def concerned(self, ops: Sequence[Op]) -> list[Hint]:
        """Whom these changes concern."""
        keys: dict[tuple[Kind, str], None] = {}
        for op in ops:
            if isinstance(op, Create | Set | Delete):
                keys["value", op.path] = None
            if isinstance(op, Create | Delete):
                keys["children", op.path] = keys["children", op.path.rpartition("/")[0]] = None
        return [hint for key in keys for hint in self.hints.get(key, ())]

    def _check(self, op: Op) -> HootError | None:
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

    def _apply(self, op: Op) -> int:
        """Apply what `_check` allows."""
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

    def _restore(self, path: str, node: tuple[bytes, int] | None) -> None:
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


class MemorySession(ZNodes):
    """A session on a tree: what ZooKeeperClient is on a ZooKeeper. Thread-safe; `stop` ends what is ephemeral by it."""

    _count = 0

    def __init__(self, tree: Tree) -> None:
        MemorySession._count += 1
        self.session_id = MemorySession._count
        self.state: State = "steady"
        self._shared = tree
        self._ephemerals: set[str] = set()
        self._hints: list[tuple[tuple[Kind, str], Hint]] = []

    def start(self) -> None:
        """Nothing has to be reached."""

    def stop(self) -> None:
        """The end of the session. Stopping twice is fine."""
        for (_, path), hint in list(self._hints):
            self.unwatch(path, hint)
        for path in sorted(self._ephemerals):
            self.delete(path)

    def on_state(self, callback: StateCallback) -> None:
        """It never changes."""

    def watch_value(self, path: str, hint: Hint) -> None:
        """See ZooKeeperClient."""
        self._add_hint(("value", check_path(path)), hint)

    def watch_children(self, path: str, hint: Hint) -> None:
        """See ZooKeeperClient."""
        self._add_hint(("children", check_path(path)), hint)

    def unwatch(self, path: str, hint: Hint | None = None) -> None:
        """See ZooKeeperClient."""
        with self._shared.lock:
            gone = [one for one in self._hints if one[0][1] == path and hint in (None, one[1])]
            for one in gone:
                self._hints.remove(one)
                self._shared.hints[one[0]].remove(one[1])

    def _add_hint(self, key: tuple[Kind, str], hint: Hint) -> None:
        with self._shared.lock:
            self._shared.hints.setdefault(key, []).append(hint)
            self._hints.append((key, hint))
        hint()

    def _read(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        with self._shared.lock:
            if aspect == "value":
                return [self._shared.nodes.get(check_path(path)) for path in paths]
            found = [self._shared.children.get(check_path(path)) for path in paths]
            return [None if names is None else list(names) for names in found]

    def _transact(self, ops: Sequence[Op]) -> list[int] | Refused:
        check_request(ops)
        with self._shared.lock:
            outcome = self._shared.transact(ops)
            if isinstance(outcome, Refused):
                return outcome
            for op in ops:
                if isinstance(op, Create) and op.ephemeral:
                    self._ephemerals.add(op.path)
                elif isinstance(op, Delete):
                    self._ephemerals.discard(op.path)
            hints = self._shared.concerned(ops)
        for hint in hints:
            hint()
        return outcome
