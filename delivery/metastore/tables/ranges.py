"""Ranges of keys for the cursors of scannable tables (seed 001, `MetastoreScannableTable`).

Keys are ordered by their code points, which is the byte order of their UTF-8, in every implementation.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from delivery.metastore.errors import IllegalOperation


class Order(Enum):
    """Which way a cursor goes."""

    ASC = "ascending"
    DESC = "descending"


class KeyRange(msgspec.Struct, frozen=True):
    """The keys between two ends, in a direction; an end that is None is open.

    A legal range that lies wholly outside the keys is empty: Hedwig's table moved its ends to the nearest keys, found
    them in the wrong order and refused, so that reading the subscriptions of a topic without any failed.
    """

    low: str | None = None
    low_inclusive: bool = True
    high: str | None = None
    high_inclusive: bool = True
    order: Order = Order.ASC

    def begins_after(self, key: str) -> bool:
        """Whether `key` is too low for this range."""
        return self.low is not None and (key < self.low or (key == self.low and not self.low_inclusive))

    def ends_before(self, key: str) -> bool:
        """Whether `key` is too high for this range."""
        return self.high is not None and (key > self.high or (key == self.high and not self.high_inclusive))

    def contains(self, key: str) -> bool:
        """Whether `key` is in this range."""
        return not self.begins_after(key) and not self.ends_before(key)


EVERYTHING = KeyRange()


def key_range(
    first: str | None, first_inclusive: bool, last: str | None, last_inclusive: bool, order: Order
) -> KeyRange:
    """The range from `first` to `last` in the direction of `order`: with DESC, `first` is the higher one.

    Raises IllegalOperation when the two are the wrong way round, whether or not the table holds any key, and for an
    order that is none.
    """
    if not isinstance(order, Order):
        raise IllegalOperation(f"{str(order)[:40]!r} is no order: give Order.ASC or Order.DESC")
    for end in (first, last):
        if end is not None and not isinstance(end, str):
            raise IllegalOperation(f"{repr(end)[:60]} is no end of a range: give a key, or None for an open end")
    if order is Order.ASC:
        found = KeyRange(first, first_inclusive, last, last_inclusive, order)
    else:
        found = KeyRange(last, last_inclusive, first, first_inclusive, order)
    if found.low is not None and found.high is not None and found.low > found.high:
        raise IllegalOperation(f"a range from {first!r} to {last!r} does not go in the {order.value} direction")
    return found
