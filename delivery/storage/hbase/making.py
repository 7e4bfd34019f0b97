"""The table of a queue: made once, and known again by a word in it.

    table, the word in it, the word in the queue's record, and only then the first row of a partition

Whoever makes the table puts a random word into it, which is kept with the queue's record as well. So a table that is
not there although the record has a word was dropped, and one with another word, or none, was emptied or made anew, or
belongs to another HBase: what was acknowledged is not in it. It is not served, and nothing is put into it, as if the
queue had been empty. The word comes back with a table that is restored.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

from delivery.errors import HootError, LayoutMismatch, MessagesGone
from delivery.hbase import Admin, NoTable, Tables
from delivery.storage.base import PartitionKey
from delivery.storage.hbase import keys
from delivery.storage.hbase.layouts import PIECE_BYTES
from delivery.storage.homes import Register, in_hbase, not_in_hbase, word_of

_END: Final = b"\xff\xff\xff"
"""Above every row."""

_log = logging.getLogger(__name__)


class Making:
    """Makes the tables of queues, and knows them again. Thread-safe, blocking."""

    def __init__(self, tables: Tables, admin: Admin | None, register: Register) -> None:
        self._tables, self._admin, self._register = tables, admin, register
        self._words: dict[str, bytes] = {}
        """Of the tables that were found to be there and ours."""
        self._looked = False

    def ensure(self, table: str, key: PartitionKey, partitions: int) -> bytes:
        """See that the queue's table is there and one of ours, and make it where there never was one; its word.

        Whether the word still stands in it is for whoever opens a partition to see.
        Raises MessagesGone, WrongStore for a queue that is not in HBase, LayoutMismatch for somebody else's table,
        StorageUnavailable, and what a Register does.
        """
        word = self._words.get(table)
        if word is None:
            word = self._words[table] = self._find(table, key, partitions)
            self.look(table)
        return word

    def look(self, table: str) -> None:
        """Warn, once, when HBase takes no cell as large as there may be."""
        if self._looked:
            return
        try:
            error = self._tables.refuses(table, keys.TABLE_ROW, keys.TABLE, PIECE_BYTES)
        except HootError:
            return  # whoever needs the table will hear of it
        self._looked = True
        if error is not None:
            _log.warning(
                "HBase takes no cell of %d MiB, which messages and batches may have, and refuses them (%s): set there"
                " hbase.server.keyvalue.maxsize, and for gateways hbase.client.keyvalue.maxsize, to 10485760",
                PIECE_BYTES >> 20, error.message,
            )  # fmt: skip

    def forget(self, table: str) -> None:
        """Look anew next time."""
        self._words.pop(table, None)

    def _find(self, table: str, key: PartitionKey, partitions: int) -> bytes:
        kept, made = self._kept(key), False
        try:
            self._check(table, self._tables.families(table))
        except NoTable:
            if kept:
                raise gone(table, "is not there any more") from None
            self._make(table, partitions)
            made = True
        if kept:
            return kept
        word = self._mark(table, made=made)
        home = in_hbase(word.decode())
        settled = self._register.settle_home(key.queue, key.generation, home)
        if word_of(settled) is None:
            raise not_in_hbase(key)
        if settled != home:
            raise gone(table, "was dropped at this moment, and made anew")
        if made:
            self._check(table, self._tables.families(table))
        return word

    def _kept(self, key: PartitionKey) -> bytes:
        """The word in the queue's record, empty before there is one."""
        home = self._register.home_of(key.queue, key.generation)
        word = word_of(home)
        if home and word is None:
            raise not_in_hbase(key)
        return (word or "").encode()

    def _make(self, table: str, partitions: int) -> None:
        if self._admin is None:
            self._tables.create(table, keys.FAMILIES)
        else:
            self._admin.create(table, keys.FAMILIES, keys.splits(partitions))
        self._tables.wait_open(table)

    def _mark(self, table: str, *, made: bool) -> bytes:
        """The word in a table that no record knows, put into it if there is none."""
        if not made:
            # Whoever made it may have died before the record was written; nobody has put a row into it then.
            families = [family.encode() for family in keys.FAMILIES]
            rows = self._tables.scan(table, b"", _END, families, limit=1, keys_only=True)
            if rows and not self._tables.get(table, keys.TABLE_ROW, [keys.TABLE]):
                raise LayoutMismatch(
                    f"the table {table} of HBase is none of Hoot's: something is in it, and not what makes it Hoot's"
                )
        return self._tables.settle(table, keys.TABLE_ROW, keys.TABLE, secrets.token_hex(8).encode())

    def _check(self, table: str, families: dict[str, int | None]) -> None:
        if set(families) != set(keys.FAMILIES):
            raise LayoutMismatch(f"the table {table} of HBase is none of Hoot's: its families are {sorted(families)}")
        if lives := {life for life in families.values() if life is not None}:
            _log.warning("HBase removes what is in the table %s after %d s, whatever retention its queue has: say there"
                         " alter '%s', {NAME => FAMILY, TTL => 'FOREVER'} for %s", table, min(lives), table,
                         " and ".join(sorted(families)))  # fmt: skip


def gone(table: str, what: str) -> MessagesGone:
    """That a queue's table is not the one that was made for it."""
    return MessagesGone(
        f"the table {table} of HBase {what}, and what was acknowledged is not in it: restore it, set the hosts up for"
        " the HBase and the hbase_prefix that it is in, or delete the queue"
    )
