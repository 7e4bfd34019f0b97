"""Versions of entries, and how they compare (seed 001; Hedwig's `Version` and `Versioned`)."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final, Generic, TypeVar

import msgspec

from delivery.metastore.errors import IllegalOperation

T = TypeVar("T")

NUMBER_MAX: Final = 2**31 - 1
"""ZooKeeper counts the changes of a znode in 32 bits, and a larger number would not go into its request."""


class Occurred(Enum):
    """How one version stands to another."""

    BEFORE = "before"
    AFTER = "after"
    CONCURRENTLY = "concurrently"


class Version(msgspec.Struct, frozen=True):
    """How often the entry of a key was changed, 0 when it is new; or what a change asks for: `NEW` or `ANY`.

    It counts from 0 again when a key is removed and put anew. Where that matters, the value has to say which of the
    two it is: a compare-and-set with a version from before the removal may succeed after it.
    """

    number: int

    NEW: ClassVar[Version]
    """Of no entry: a put with it creates."""
    ANY: ClassVar[Version]
    """Of every entry: a change with it needs the entry to be there, and no more."""

    def compare(self, other: Version) -> Occurred:
        """Whether this version came before or after `other`. Raises IllegalOperation for what is no version.

        ANY is concurrent with everything, whichever side it is on; otherwise NEW comes before all but itself.
        """
        if not isinstance(other, Version):
            raise IllegalOperation(f"{str(other)[:40]!r} is no version to compare with")
        if self == other or Version.ANY in (self, other):
            return Occurred.CONCURRENTLY
        return Occurred.BEFORE if self.number < other.number else Occurred.AFTER


Version.NEW = Version(-1)
Version.ANY = Version(-2)


class Versioned(msgspec.Struct, Generic[T], frozen=True):
    """A value as it was at a version."""

    value: T
    version: Version


def check_version(version: object) -> Version:
    """`version` if an entry can be asked for by it. Raises IllegalOperation."""
    if not isinstance(version, Version):
        raise IllegalOperation(
            f"{str(version)[:40]!r} is no version: give Version.NEW, Version.ANY or one that was read"
        )
    if not Version.ANY.number <= version.number <= NUMBER_MAX:
        raise IllegalOperation(f"{str(version.number)[:40]} is no version that an entry can have")
    return version
