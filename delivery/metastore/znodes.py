"""What can be done with the tree of znodes, on top of two things that a connection gives: reading and transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Literal

from delivery.errors import BadVersion
from delivery.metastore.ops import ANY_VERSION, Create, Delete, NoNode, Op, Refused, Set

Aspect = Literal["value", "children"]

_DELETES_AT_ONCE: Final = 500
_DELETE_ROUNDS: Final = 20


class ZNodes(ABC):
    """Blocking access to the znodes. Besides what is said at each call, all raise what the connection raises.

    Versions count the changes of a value, from 0 at the znode's creation.
    """

    @abstractmethod
    def _read(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        """Per path its (value, version), or its children's names; None where there is no znode."""

    @abstractmethod
    def _transact(self, ops: Sequence[Op]) -> list[int] | Refused:
        """Apply all, giving the version after each `Set` (0 for other operations), or none."""

    # -- reading

    def get(self, path: str) -> tuple[bytes, int] | None:
        """The value and version of a znode, None when there is none."""
        return self.get_many([path])[0]

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """`get` for each path, not as of one moment. A deadline holds for each 64 of them."""
        return self._read("value", paths)

    def children(self, path: str) -> list[str] | None:
        """The names right below a znode, sorted; None when there is no such znode."""
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """`children` of each path, not as of one moment."""
        return [None if names is None else sorted(names) for names in self._read("children", paths)]

    def exists(self, path: str) -> bool:
        """Whether there is such a znode."""
        return self.get(path) is not None

    # -- writing

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        """A new znode. Raises NodeExists; NoNode when its parent is missing; InvalidRequest when it is too large."""
        self._write(Create(path, value, ephemeral))

    def set(self, path: str, value: bytes, version: int = ANY_VERSION) -> int:
        """A new value; gives the new version. Raises BadVersion, NoNode, InvalidRequest when it is too large."""
        return self._write(Set(path, value, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> bool:
        """Delete a znode; False when there was none. Raises BadVersion, and NotEmpty when it has children."""
        try:
            self._write(Delete(path, version))
        except NoNode:
            return False
        return True

    def delete_tree(self, path: str, *, below: bool = False) -> None:
        """Delete a znode, if it is there, and all below it, deepest first. One broken off can be done again.

        With `below` the znode itself stays. Raises BadVersion when others keep adding to it.
        """
        for _ in range(_DELETE_ROUNDS):
            paths = self._tree(path)[: -1 if below else None]
            if not paths:
                return
            parts = (paths[at : at + _DELETES_AT_ONCE] for at in range(0, len(paths), _DELETES_AT_ONCE))
            for part in parts:
                if self.multi([Delete(one) for one in part]) is not None:
                    break  # something came or went meanwhile: look again
        raise BadVersion(f"{path} cannot be deleted: something is added to it again and again")

    def multi(self, ops: Sequence[Op]) -> Refused | None:
        """Apply all of `ops` and give None, or none of them and say which was refused and why.

        Raises InvalidRequest when they are too large together.
        """
        outcome = self._transact(ops) if ops else None
        return outcome if isinstance(outcome, Refused) else None

    def _write(self, op: Op) -> int:
        outcome = self._transact([op])
        if isinstance(outcome, Refused):
            raise outcome.error
        return outcome[0]

    def _tree(self, path: str) -> list[str]:
        """`path` and all below it that is there, deepest first."""
        paths: list[str] = []
        level = [path]
        while level:
            found = [
                (one, names)
                for one, names in zip(level, self._read("children", level), strict=True)
                if names is not None
            ]
            paths += [one for one, _ in found]
            level = [f"{one}/{name}" for one, names in found for name in names]
        return paths[::-1]
