"""What a table keeps under a key: named fields of bytes, and the limits on keys and fields (seed 001)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from delivery.metastore.errors import IllegalOperation, ValueTooLarge

KEY_BYTES_MAX: Final = 512
"""In UTF-8. The longest that Hoot makes has 505: a queue, a subscription and a partition, with separators."""
FIELDS_MAX: Final = 64
VALUE_BYTES_MAX: Final = 512 * 1024
"""All fields of an entry, names included. ZooKeeper takes 1 MiB in a request, which may carry pages of keys, too."""

Fields = Collection[str] | None
"""Which fields to read: some names, ALL or NONE."""
ALL: Final = None
NONE: Final[Fields] = ()
"""Only the version: the entry's value is not even looked at, so that damaged ones can be listed and removed."""

_FIELD = re.compile(r"[A-Za-z0-9._-]{1,64}\Z", re.ASCII)


class Value(Mapping[str, bytes | None]):
    """Fields by name. Immutable. None in what is put removes a field; what is read holds none."""

    __slots__ = ("_fields", "size")

    def __init__(self, fields: Mapping[str, bytes | None]) -> None:
        """Raises IllegalOperation for bad names, values or too many fields, ValueTooLarge above VALUE_BYTES_MAX."""
        self._fields = dict(fields)
        if len(self._fields) > FIELDS_MAX:
            raise IllegalOperation(f"an entry has at most {FIELDS_MAX} fields, not {len(self._fields)}")
        given: Iterable[tuple[object, object]] = self._fields.items()
        for name, content in given:
            if not isinstance(name, str) or not _FIELD.match(name):
                raise IllegalOperation(
                    f"{repr(name)[:70]} is no field: use 1 to 64 of the characters A-Z a-z 0-9 . _ -"
                )
            if content is not None and not isinstance(content, bytes):
                raise IllegalOperation(f"field {name!r} holds bytes or None, not {type(content).__name__}")
        self.size = sum(len(name) + len(content or b"") for name, content in self._fields.items())
        if self.size > VALUE_BYTES_MAX:
            raise ValueTooLarge(f"the fields would take {self.size} bytes; an entry holds {VALUE_BYTES_MAX}")

    def __getitem__(self, name: str) -> bytes | None:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Value({self._fields!r})"

    def merge(self, changes: Value) -> Value:
        """These fields with `changes` over them; those that are None there are gone. Raises as the constructor."""
        merged = {**self._fields, **changes}
        return Value({name: content for name, content in merged.items() if content is not None})

    def project(self, fields: Fields) -> Value:
        """Only the fields asked for, as far as they are there."""
        if fields is ALL:
            return self
        return Value({name: content for name, content in self._fields.items() if name in fields})


EMPTY: Final = Value({})


def check_key(key: object) -> str:
    """`key` if an entry can have it: text, 1 to KEY_BYTES_MAX bytes in UTF-8. Raises IllegalOperation."""
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(key, str) and 1 <= len(key.encode()) <= KEY_BYTES_MAX:
            return key
    raise IllegalOperation(f"{repr(key)[:60]} is no key: it has to be text of 1 to {KEY_BYTES_MAX} bytes in UTF-8")


def check_fields(fields: Fields) -> Fields:
    """`fields` if they can be asked for. Raises IllegalOperation."""
    if isinstance(fields, str) or (fields is not ALL and not isinstance(fields, Collection)):
        raise IllegalOperation(f"ask for a set of field names, ALL or NONE, not {repr(fields)[:60]}")
    return fields
