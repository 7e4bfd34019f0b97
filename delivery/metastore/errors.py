"""The outcomes of the MetaStore and its managers (seed 001's result codes, seed 000), which never leave the process."""

from __future__ import annotations

from delivery.errors import HootError, InvalidRequest


class NoKey(HootError):
    """The MetaStore's table has no entry under that key."""

    code = "no_key"


class KeyExists(HootError):
    """The MetaStore's table has an entry under that key already."""

    code = "key_exists"


class NoOwnerInfo(NoKey):
    """Nobody has ever owned the partition, so there is no owner to change or to delete."""

    code = "no_owner_info"


class OwnerInfoExists(KeyExists):
    """The partition has an owner's record already: another host was faster."""

    code = "owner_info_exists"


class NoPersistenceInfo(NoKey):
    """The partition has no record of sealed ranges to change or to delete."""

    code = "no_persistence_info"


class PersistenceInfoExists(KeyExists):
    """The partition has a record of sealed ranges already."""

    code = "persistence_info_exists"


class IllegalOperation(InvalidRequest):
    """A key, version, range or order that a MetaStore cannot take; nothing was done."""

    code = "illegal_operation"


class ValueTooLarge(InvalidRequest):
    """The fields of an entry would take more than a MetaStore keeps under one key; nothing was stored."""

    code = "value_too_large"


class TableFull(HootError):
    """The MetaStore's table cannot hold more keys; nothing was stored."""

    code = "table_full"
