"""What becomes of the connections of a database that nobody has borrowed."""

from __future__ import annotations

from subscriber.connections import Connections


class Connection:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_what_was_given_back_is_lent_again() -> None:
    pool = Connections(Connection)
    first = pool.borrow()
    pool.give_back(first)
    with pool.borrowed() as again:
        assert again is first
        assert pool.borrow() is not first


def test_they_are_closed_with_what_holds_them() -> None:
    pool = Connections(Connection)
    with pool.borrowed() as first, pool.borrowed() as second:
        pass
    del pool
    assert first.closed
    assert second.closed


def test_a_broken_one_is_not_kept() -> None:
    pool = Connections(Connection, lambda connection: True)
    with pool.borrowed() as first:
        pass
    assert first.closed
    assert pool.borrow() is not first
