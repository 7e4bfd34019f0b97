"""Who manages transactions, and all that is kept of them: one entry, so that one version guards both.

Whoever takes transactions over moves the entry's version, and what a former manager writes later is refused.
"""

from __future__ import annotations

from typing import Final

import msgspec

from delivery.errors import BadVersion, HootError
from delivery.metastore.errors import KeyExists, NoKey
from delivery.metastore.managers.records import Codec, OwnerInfo, check_owner
from delivery.metastore.ops import InDoubt
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.transactions.state import State, check_state

TABLE: Final = "transactions"
_KEY: Final = "all"

_MANAGER: Final = Codec("manager", OwnerInfo, check_owner, TABLE)
_STATE: Final = Codec("state", State, check_state, TABLE)


class Managed(msgspec.Struct, frozen=True):
    """The host that manages transactions, and what it has kept of them."""

    manager: OwnerInfo
    state: State


class TransactionRecords:
    """The entry. Blocking and thread-safe. Whether the host lives is not known here."""

    def __init__(self, store: MetaStore) -> None:
        self._table = store.create_table(TABLE)

    def read(self) -> Versioned[Managed] | None:
        """What is kept and its version, None before the first transaction. Raises CorruptRecord."""
        try:
            found = self._table.get(_KEY)
        except NoKey:
            return None
        managed = Managed(_MANAGER.decode(found.value, _KEY), _STATE.decode(found.value, _KEY))
        return Versioned(managed, found.version)

    def read_manager(self) -> OwnerInfo | None:
        """Who manages, None before the first transaction. Raises CorruptRecord."""
        try:
            found = self._table.get(_KEY, {_MANAGER.field})
        except NoKey:
            return None
        return _MANAGER.decode(found.value, _KEY)

    def write(self, managed: Managed, version: Version) -> Version:
        """Keep `managed` if the entry has `version`, NEW for the first; gives the new version.

        Of several who write at once under one version exactly one succeeds. Raises BadVersion for the others; InDoubt
        when it may still be written, even later.
        """
        value = Value({**_MANAGER.encode(managed.manager), **_STATE.encode(managed.state)})
        try:
            return self._table.put(_KEY, value, version, whole=True)
        except InDoubt:
            following = Version(version.number + 1)
            if not self._is_there(Versioned(managed, following)):
                raise
            return following
        except (KeyExists, NoKey) as error:
            raise BadVersion("another host manages transactions, or they were wiped") from error

    def _is_there(self, wanted: Versioned[Managed]) -> bool:
        """Whether it can be read."""
        try:
            return self.read() == wanted
        except HootError:
            return False
