"""Which store a queue's messages are in: kept with the queue's record, for good, before anything is stored.

A queue is made without hosts, so that nobody knows then. The first that takes one of its partitions settles it by the
store that it was set up with. A host with another store, or with the log of another data folder, holds nothing of the
queue: it does not serve it, and puts nothing into its own, as if the queue had been empty.
"""

from __future__ import annotations

from typing import Final, Protocol

from delivery.errors import WrongStore
from delivery.storage.base import PartitionKey

_LOG: Final = "log:"
_HBASE: Final = "hbase:"


class Register(Protocol):
    """Where it is kept what each queue's home is (metastore.catalog.Catalog); blocking."""

    def home_of(self, name: str, generation: str) -> str:
        """The home, empty before there is one. Raises UnknownQueue, MetadataUnavailable."""

    def settle_home(self, name: str, generation: str, home: str) -> str:
        """Keep a home unless there is one: the one that counts. Raises UnknownQueue, MetadataUnavailable."""


class OwnRegister:
    """What one store knows by itself; for those that stand alone."""

    def __init__(self) -> None:
        self._homes: dict[tuple[str, str], str] = {}

    def home_of(self, name: str, generation: str) -> str:
        """See Register."""
        return self._homes.get((name, generation), "")

    def settle_home(self, name: str, generation: str, home: str) -> str:
        """See Register."""
        return self._homes.setdefault((name, generation), home)


def in_log(folder: str) -> str:
    """The home of queues in the log of a data folder, by the word in that folder's layout."""
    return _LOG + folder


def in_hbase(word: str) -> str:
    """The home of a queue whose table has this word in it."""
    return _HBASE + word


def word_of(home: str) -> str | None:
    """The word in the table that is this home, None for a home that is none in HBase."""
    return home.removeprefix(_HBASE) if home.startswith(_HBASE) else None


def settle_in_log(register: Register, key: PartitionKey, home: str) -> None:
    """Say that a queue is in this log, before anything of it is there. Raises WrongStore, and what a Register does."""
    settled = register.settle_home(key.queue, key.generation, home)
    if settled.startswith(_HBASE):
        raise WrongStore(
            f"queue {key.queue!r} is in HBase, and this host keeps messages in the log of its data folder: stop it, and"
            " serve the queue with `hoot serve --store hbase`"
        )
    if settled != home:
        raise WrongStore(
            f"queue {key.queue!r} is in another data folder than this host's: the one whose layout.json has the id"
            f" {settled.removeprefix(_LOG)}. Hosts on a log share one folder: name it with `hoot serve --data`; hosts"
            " on several machines keep messages in HBase, with `--store hbase`"
        )


def not_in_hbase(key: PartitionKey) -> WrongStore:
    """That HBase is not where a queue is."""
    return WrongStore(
        f"queue {key.queue!r} is in the log of a data folder, and this host keeps messages in HBase: serve the queue"
        " with `hoot serve --store log --data FOLDER`, from which `hoot queue copy` brings it into HBase"
    )
