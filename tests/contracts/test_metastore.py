"""A MetaStore, whatever keeps it: get, put, remove, versions (seed 001; TestMetaStore re-derived)."""

from __future__ import annotations

from typing import Any

import pytest

from delivery.errors import BadVersion
from delivery.metastore.errors import IllegalOperation, KeyExists, NoKey, ValueTooLarge
from delivery.metastore.tables.base import (
    MetaStore,
    MetastoreTable,
    Put,
)
from delivery.metastore.tables.values import (
    ALL,
    FIELDS_MAX,
    KEY_BYTES_MAX,
    NONE,
    VALUE_BYTES_MAX,
    Value,
)
from delivery.metastore.tables.versions import Occurred, Version, Versioned
from tests.metastore_tables import ANY, FULL, NEW, WRONG, found, keys, refused

# -- TestMetaStore.testNonExistent ----------------------------------------------------------------------------------


def test_what_is_not_there_gives_no_key(table: MetastoreTable) -> None:
    for fields in (ALL, NONE, {"name"}):
        assert refused(table.get, "test", fields) is NoKey
    for version in (ANY, NEW, Version(0), WRONG):
        assert refused(table.remove, "test", version) is NoKey
    for version in (ANY, Version(0), WRONG):
        for whole in (False, True):
            assert refused(table.put, "test", FULL, version, whole=whole) is NoKey
    assert table.get_many(["test", "other"]) == [None, None]
    assert found(table, "test") is None


# -- testGet --------------------------------------------------------------------------------------------------------


def test_all_some_and_no_fields_are_read_with_the_version(table: MetastoreTable) -> None:
    version = table.put("test", FULL, NEW)
    assert table.get("test") == Versioned(FULL, version)
    assert table.get("test", {"name"}) == Versioned(Value({"name": b"first"}), version)
    assert table.get("test", ["name", "unknown"]) == Versioned(Value({"name": b"first"}), version)
    assert table.get("test", NONE) == Versioned(Value({}), version)
    assert table.get("test", set()) == Versioned(Value({}), version)
    assert table.get_many(["test", "none"], {"counter"}) == [Versioned(Value({"counter": b"7"}), version), None]


@pytest.mark.parametrize("key", [None, "", 7, b"k", "x" * (KEY_BYTES_MAX + 1), "é" * 257, "\ud800"])
def test_a_key_that_cannot_be_is_illegal_everywhere(metastore: MetaStore, key: Any) -> None:
    table = metastore.create_table("t")
    for fields in (ALL, NONE, {"name"}):
        assert refused(table.get, key, fields) is IllegalOperation
    assert refused(table.put, key, FULL, NEW) is IllegalOperation
    assert refused(table.remove, key, ANY) is IllegalOperation
    assert refused(table.put_many, [Put("good", FULL, NEW), Put(key, FULL, NEW)]) is IllegalOperation
    assert found(table, "good") is None, "nothing is done when anything is illegal"


@pytest.mark.parametrize(
    "key",
    [".", "..", "a/b", "/", "%2E", "a b", "\x01\x7f", "q\x01s\x0100042", "Ü", "😀" * 128, "x" * 512, "'\"\\", "-"],
)
def test_every_other_key_is_kept_as_it_is(table: MetastoreTable, key: str) -> None:
    table.put(key, FULL, NEW)
    assert table.get(key).value == FULL
    assert keys(table.open_cursor()) == [key]
    table.remove(key, Version(0))
    assert keys(table.open_cursor()) == []


# -- testPut --------------------------------------------------------------------------------------------------------


def test_puts_with_the_right_version_merge_fields_and_count_versions(table: MetastoreTable) -> None:
    assert table.put("test", FULL, NEW) == Version(0)
    assert table.put("test", Value({"name": b"n1"}), Version(0)) == Version(1)
    assert table.get("test") == Versioned(Value({"name": b"n1", "counter": b"7"}), Version(1))
    assert table.put("test", Value({"counter": b"8"}), Version(1)) == Version(2)
    assert table.get("test") == Versioned(Value({"name": b"n1", "counter": b"8"}), Version(2))
    assert table.put("test", Value({"name": b"n2", "counter": b"9"}), Version(2)) == Version(3)
    for at, change in enumerate([{"name": b"n3", "counter": b"10"}, {"name": b"n4"}, {"counter": b"11"}]):
        assert table.put("test", Value(change), ANY) == Version(4 + at)
    assert table.get("test") == Versioned(Value({"name": b"n4", "counter": b"11"}), Version(6))


def test_puts_with_the_wrong_version_change_nothing(table: MetastoreTable) -> None:
    version = table.put("test", FULL, NEW)
    table.put("test", Value({}), version)
    for change in ({"name": b"x", "counter": b"1"}, {"name": b"x"}, {"counter": b"1"}, {}):
        for whole in (False, True):
            assert refused(table.put, "test", Value(change), NEW, whole=whole) is KeyExists
            assert refused(table.put, "test", Value(change), WRONG, whole=whole) is BadVersion
            assert refused(table.put, "test", Value(change), version, whole=whole) is BadVersion
    assert table.get("test") == Versioned(FULL, Version(1))


@pytest.mark.parametrize("value", [None, {"name": b"x"}, b"x"])
def test_what_is_no_value_is_illegal(metastore: MetaStore, value: Any) -> None:
    table = metastore.create_table("t")
    assert refused(table.put, "test", value, NEW) is IllegalOperation
    assert found(table, "test") is None


@pytest.mark.parametrize("version", [None, 0, Version(2**31), Version(-3)])
def test_what_is_no_version_is_illegal(metastore: MetaStore, version: Any) -> None:
    table = metastore.create_table("t")
    table.put("test", FULL, NEW)
    assert refused(table.put, "test", FULL, version) is IllegalOperation
    assert refused(table.put, "test", None, version) is IllegalOperation
    assert refused(table.remove, "test", version) is IllegalOperation
    assert table.get("test").version == Version(0)


def test_a_field_put_as_none_is_removed_and_the_others_stay(table: MetastoreTable) -> None:
    table.put("test", Value({"a": b"1", "gone": None, "empty": b""}), NEW)
    assert dict(table.get("test").value) == {"a": b"1", "empty": b""}
    table.put("test", Value({"a": None, "unknown": None, "b": b"2"}), ANY)
    assert dict(table.get("test").value) == {"empty": b"", "b": b"2"}
    table.put("test", Value({"empty": None, "b": None}), Version(1))
    assert table.get("test") == Versioned(Value({}), Version(2)), "an entry without fields is still one"


def test_a_whole_put_leaves_no_other_field(table: MetastoreTable) -> None:
    table.put("test", FULL, NEW)
    assert table.put("test", Value({"name": b"x"}), Version(0), whole=True) == Version(1)
    assert table.get("test").value == Value({"name": b"x"})
    assert table.put("test", Value({"counter": b"1", "name": None}), ANY, whole=True) == Version(2)
    assert table.get("test") == Versioned(Value({"counter": b"1"}), Version(2))


def test_a_value_over_the_limit_is_refused_whether_put_or_merged(table: MetastoreTable) -> None:
    half = b"x" * (VALUE_BYTES_MAX // 2)
    table.put("test", Value({"a": half}), NEW)
    assert refused(Value, {"a": half, "b": half}) is ValueTooLarge
    for version in (ANY, Version(0)):
        assert refused(table.put, "test", Value({"b": half}), version) is ValueTooLarge
    assert refused(table.put, "test", Value({f"f{at}": b"" for at in range(FIELDS_MAX)}), ANY) is IllegalOperation
    assert table.get("test") == Versioned(Value({"a": half}), Version(0))
    table.put("test", Value({"a": b"x" * (VALUE_BYTES_MAX - 1)}), Version(0), whole=True)
    assert table.get("test").value.size == VALUE_BYTES_MAX


@pytest.mark.parametrize("fields", [{"": b""}, {"a b": b""}, {"x" * 65: b""}, {7: b""}, {"a": "text"}, {"a": 7}])
def test_fields_have_plain_names_and_bytes(fields: Any) -> None:
    assert refused(Value, fields) is IllegalOperation


def test_fields_to_read_are_no_single_string(table: MetastoreTable) -> None:
    assert refused(table.get, "test", "name") is IllegalOperation
    assert refused(table.open_cursor, fields="name") is IllegalOperation


# -- testRemove -----------------------------------------------------------------------------------------------------


def test_removing_needs_the_right_version_or_any(table: MetastoreTable) -> None:
    table.put("test", FULL, NEW)
    table.remove("test", ANY)
    assert found(table, "test") is None
    assert table.put("test", FULL, NEW) == Version(0), "a key that comes again counts anew"
    table.put("test", FULL, ANY)
    for wrong in (NEW, WRONG, Version(0)):
        assert refused(table.remove, "test", wrong) is BadVersion
    table.remove("test", Version(1))
    assert refused(table.remove, "test", Version(1)) is NoKey
    assert table.put("test", Value({"b": b"1"}), NEW) == Version(0)
    assert table.get("test").value == Value({"b": b"1"}), "nothing of the one before is left"


# -- versions -------------------------------------------------------------------------------------------------------


def test_versions_come_before_after_or_concurrently() -> None:
    before, after, same = Occurred.BEFORE, Occurred.AFTER, Occurred.CONCURRENTLY
    assert Version(1).compare(Version(2)) is before
    assert Version(2).compare(Version(1)) is after
    assert Version(2).compare(Version(2)) is same
    assert NEW.compare(NEW) is same
    assert NEW.compare(Version(0)) is before
    assert Version(0).compare(NEW) is after
    for version in (NEW, ANY, Version(0), Version(7)):
        assert ANY.compare(version) is same
        assert version.compare(ANY) is same
    wrong: Any
    for wrong in (None, 1, "1"):
        assert refused(Version(1).compare, wrong) is IllegalOperation
