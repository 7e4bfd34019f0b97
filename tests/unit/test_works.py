"""Work that only one may be at: whose turn it is, also after sessions that ended."""

from __future__ import annotations

import pytest

from delivery.errors import InvalidRequest
from delivery.metastore.catalog import Catalog
from delivery.metastore.tables.memory import MemoryMetaStore
from delivery.testing.znodes import MemorySession, Tree

WHAT = ("compaction", "orders")
PATH = "/hoot/works/compaction@orders"


def session(tree: Tree) -> tuple[MemorySession, Catalog]:
    opened = MemorySession(tree)
    catalog = Catalog(opened, MemoryMetaStore())
    catalog.ensure_layout()
    return opened, catalog


def is_refused(catalog: Catalog, why: str) -> bool:
    with pytest.raises(InvalidRequest, match=why), catalog.alone(*WHAT, 0.0):
        pytest.fail("two are at it")
    return True


def test_one_is_at_it_until_it_has_ended_and_then_the_next() -> None:
    tree = Tree()
    (_, first), (_, second) = session(tree), session(tree)
    for _ in range(2):
        with first.alone(*WHAT), second.alone("compaction", "others"):
            assert is_refused(second, r"process \d+ on .* is at the compaction of queue 'orders': wait")
        with second.alone(*WHAT):
            assert is_refused(first, "wait for its end")


def test_whoever_was_killed_is_at_it_until_the_session_ends() -> None:
    tree = Tree()
    (gone, first), (_, second) = session(tree), session(tree)
    turn = first.alone(*WHAT)
    turn.__enter__()
    assert is_refused(second, "wait")
    gone.stop()
    with second.alone(*WHAT, 0.0) as still_alone:
        still_alone()


def test_a_turn_that_ended_with_a_session_is_taken_again_unless_another_one_has_it() -> None:
    tree = Tree()
    (lost, first), (_, second) = session(tree), session(tree)
    with first.alone(*WHAT, 0.0) as still_alone:
        lost.delete(PATH)
        still_alone()
        assert is_refused(second, "wait")
        lost.delete(PATH)
        with second.alone(*WHAT, 0.0) as second_alone:
            with pytest.raises(InvalidRequest, match="since this one's ZooKeeper session had ended"):
                still_alone()
            second_alone()


def test_who_has_lost_the_turn_leaves_that_of_another_alone() -> None:
    tree = Tree()
    (lost, first), (_, second) = session(tree), session(tree)
    with first.alone(*WHAT, 0.0):
        lost.delete(PATH)
        turn = second.alone(*WHAT, 0.0)
        second_alone = turn.__enter__()
    second_alone()
    assert lost.exists(PATH)
