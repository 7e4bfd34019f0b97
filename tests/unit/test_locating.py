"""Ids behind which so many messages lie."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given, strategies as st

from delivery.storage.base import Amount
from delivery.storage.locating import locate


@given(
    st.sets(st.integers(1, 10**6), max_size=50), st.integers(0, 10**6), st.integers(0, 10**6),
    st.sets(st.integers(1, 60), max_size=8),
)  # fmt: skip
def test_each_is_the_id_of_that_message_or_the_end(ids: set[int], after: int, more: int, wanted: set[int]) -> None:
    ordered, until = sorted(ids), after + more

    def measure(low: int, high: int) -> Amount:
        return Amount(bisect_right(ordered, high) - bisect_right(ordered, low), 0)

    inside = [one for one in ordered if after < one <= until]
    expected = [inside[number - 1] if number <= len(inside) else until for number in sorted(wanted)]
    assert locate(measure, after, until, sorted(wanted)) == expected
