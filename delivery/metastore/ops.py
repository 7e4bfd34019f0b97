"""The parts of a ZooKeeper transaction, and why one is refused.

A transaction is a list of these; all are applied, or none. `version` is the number that ZooKeeper raises with each
`Set` of a znode, 0 at its creation. An ephemeral znode that was deleted and created again also stands at 0, so its
version proves nothing: whoever guards an ephemeral one moves the version of a persistent one in the same transaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from delivery.errors import BadVersion, HootError, InvalidRequest, MetadataUnavailable

ANY_VERSION: Final = -1
"""Given as a version: the znode has to exist, and that is all."""
REQUEST_BYTES_MAX: Final = 1_000_000
"""ZooKeeper cuts the connection on a request above its `jute.maxbuffer`, by default 1,048,575 bytes in all."""

_OVERHEAD = 96  # of one operation beyond its path and value: lengths, flags, ACL
_PATH = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[!-.0-~]+)+\Z")


class InDoubt(MetadataUnavailable):
    """The change was sent and not answered: it may or may not have been done."""


class NodeExists(BadVersion):
    """The znode to create is there already."""


class NoNode(BadVersion):
    """The znode to change, or the parent of the one to create, is not there."""


class NotEmpty(BadVersion):
    """The znode to delete has children."""


class Check(msgspec.Struct, frozen=True):
    """The znode exists and has this version."""

    path: str
    version: int = ANY_VERSION


class Create(msgspec.Struct, frozen=True):
    """A new znode; an ephemeral one goes with the session that created it."""

    path: str
    value: bytes = b""
    ephemeral: bool = False


class Set(msgspec.Struct, frozen=True):
    """A new value for a znode of this version."""

    path: str
    value: bytes
    version: int = ANY_VERSION


class Delete(msgspec.Struct, frozen=True):
    """No such znode any more, if it has this version and no children."""

    path: str
    version: int = ANY_VERSION


Op = Check | Create | Set | Delete


class Refused(msgspec.Struct, frozen=True):
    """Nothing of a transaction was applied, because of `ops[index]`."""

    index: int
    error: HootError


def check_path(path: str) -> str:
    """`path` if it is absolute, without `.` and `..`, of printable ASCII. Raises InvalidRequest.

    Hoot's names allow no more, and a path that cannot be encoded would end kazoo's connection thread for good.
    """
    if not _PATH.match(path):
        raise InvalidRequest(f"{path[:80]!r} is no path of a znode")
    return path


def size_of(op: Op) -> int:
    """About the bytes that `op` takes of a request."""
    return len(op.path) + _OVERHEAD + (len(op.value) if isinstance(op, Create | Set) else 0)


def check_request(ops: Sequence[Op]) -> None:
    """Raises InvalidRequest when ZooKeeper would not take `ops` in one request."""
    for op in ops:
        check_path(op.path)
    size = sum(map(size_of, ops))
    if size > REQUEST_BYTES_MAX:
        where = ops[0].path if len(ops) == 1 else f"{len(ops)} changes from {ops[0].path} on"
        raise InvalidRequest(f"{where} would take {size} bytes; ZooKeeper takes {REQUEST_BYTES_MAX} in a request")


def naming(verb: str, paths: Sequence[str]) -> str:
    """What is done to some znodes, in a few words."""
    return f"{verb} {paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
