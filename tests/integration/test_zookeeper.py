"""The ZooKeeper client against a real server: reading, compare-and-set, transactions."""

from __future__ import annotations

import itertools

import pytest

from delivery.errors import BadVersion, ConfigError, HootError, InvalidRequest
from delivery.metastore.ops import Check, Create, Delete, NodeExists, NoNode, NotEmpty, Op, Refused, Set
from delivery.metastore.reading import READ_AT_ONCE, ReadMany
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.metastore import Hints, Interposed, refused

pytestmark = pytest.mark.integration


def test_what_is_not_there_reads_as_none(zk: ZooKeeperClient) -> None:
    assert (zk.get("/a"), zk.children("/a"), zk.exists("/a")) == (None, None, False)


def test_children_are_the_names_right_below_sorted(zk: ZooKeeperClient) -> None:
    for path in ("/a", "/a/c", "/a/b", "/a/b/d"):
        zk.create(path)
    assert (zk.children("/a"), zk.children("/a/c")) == (["b", "c"], [])


def test_many_reads_answer_in_order_with_holes_where_nothing_is(zk: ZooKeeperClient) -> None:
    zk.create("/a")
    assert zk.multi([Create(f"/a/{n}", b"%d" % n) for n in range(0, 400, 2)]) is None
    expected = [(b"%d" % n, 0) if n % 2 == 0 else None for n in range(400)]
    assert zk.get_many([f"/a/{n}" for n in range(400)]) == expected
    assert zk.get_many([]) == []
    assert zk.children_many(["/a/0", "/b", "/a"]) == [[], None, sorted(str(n) for n in range(0, 400, 2))]


def test_many_reads_are_few_requests(zk: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    serialize = ReadMany.serialize

    def counted(request: ReadMany) -> bytes:
        asked.append(1)
        return serialize(request)

    monkeypatch.setattr(ReadMany, "serialize", counted)
    zk.get_many([f"/{n}" for n in range(1000)])
    assert len(asked) == -(-1000 // READ_AT_ONCE)


def test_a_zookeeper_that_does_not_know_reads_of_many_is_called_too_old(
    zk: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadMany, "type", 99)  # no operation of any ZooKeeper
    with pytest.raises(ConfigError, match=r"older than 3\.6"):
        zk.get("/a")


@pytest.mark.parametrize(
    ("znode", "version", "on_set", "on_delete"),
    [
        ("absent", -1, NoNode, None),
        ("absent", 0, NoNode, None),
        ("at 1", -1, None, None),
        ("at 1", 0, BadVersion, BadVersion),
        ("at 1", 1, None, None),
        ("at 1", 2, BadVersion, BadVersion),
        ("with child", 1, None, NotEmpty),
        ("with child", 0, BadVersion, BadVersion),
    ],
)
def test_compare_and_set(
    zk: ZooKeeperClient, znode: str, version: int, on_set: type[HootError] | None, on_delete: type[HootError] | None
) -> None:
    for path in ("/s", "/d"):
        if znode != "absent":
            zk.create(path, b"0")
            assert zk.set(path, b"1", 0) == 1
        if znode == "with child":
            zk.create(f"{path}/child")
    assert refused(lambda: zk.set("/s", b"new", version)) is on_set
    assert zk.get("/s") == ((b"new", 2) if on_set is None else None if znode == "absent" else (b"1", 1))
    assert refused(lambda: zk.delete("/d", version)) is on_delete
    assert zk.exists("/d") == (on_delete is not None)


def test_creating_asks_for_a_free_place_and_a_parent(zk: ZooKeeperClient) -> None:
    zk.create("/a", b"first")
    assert refused(lambda: zk.create("/a", b"second")) is NodeExists
    assert refused(lambda: zk.create("/b/c")) is NoNode
    assert zk.get("/a") == (b"first", 0)


@pytest.mark.parametrize("path", ["", "a", "/", "/a/", "//a", "/a/../b", "/.", "/a\x00", "/a b", "/é", "/\ud800"])
def test_a_path_that_would_break_the_client_is_refused(zk: ZooKeeperClient, path: str) -> None:
    for call in (zk.get, zk.children, zk.delete, zk.create):
        assert refused(lambda call=call: call(path)) is InvalidRequest  # type: ignore[misc]
    assert refused(lambda: zk.watch_value(path, Hints())) is InvalidRequest
    assert zk.state == "steady"


def test_a_value_too_large_for_zookeeper_is_refused_and_the_session_goes_on(zk: ZooKeeperClient) -> None:
    session = zk.session_id
    zk.create("/a", b"x" * 999_000)
    for call in (
        lambda: zk.create("/b", b"x" * 1_000_000),
        lambda: zk.set("/a", b"x" * 5_000_000),
        lambda: zk.multi([Create(f"/m{n}", b"x" * 300_000) for n in range(4)]),
    ):
        assert refused(call) is InvalidRequest
    found = zk.get("/a")
    assert found is not None
    assert len(found[0]) == 999_000
    assert (zk.session_id, zk.state) == (session, "steady")


# -- transactions


@pytest.mark.parametrize(
    ("culprit", "error"),
    [
        (Check("/a", 5), BadVersion),
        (Check("/none"), NoNode),
        (Set("/a", b"x", 5), BadVersion),
        (Set("/none", b"x"), NoNode),
        (Create("/a"), NodeExists),
        (Create("/none/x"), NoNode),
        (Delete("/a", 5), BadVersion),
        (Delete("/none"), NoNode),
        (Delete("/full"), NotEmpty),
    ],
)
@pytest.mark.parametrize("index", [0, 2, 4])
def test_a_refused_transaction_names_the_culprit_and_applies_nothing(
    zk: ZooKeeperClient, culprit: Op, error: type[HootError], index: int
) -> None:
    for path in ("/a", "/b", "/full", "/full/x", "/old"):
        zk.create(path, b"0")
    ops: list[Op] = [Check("/b", 0), Set("/b", b"changed", 0), Create("/new"), Delete("/old")]
    ops.insert(index, culprit)
    outcome = zk.multi(ops)
    assert isinstance(outcome, Refused)
    assert (outcome.index, type(outcome.error)) == (index, error)
    assert culprit.path in outcome.error.message
    assert zk.get("/b") == (b"0", 0)
    assert (zk.exists("/new"), zk.exists("/old"), zk.exists("/full/x")) == (False, True, True)


def test_a_transaction_that_is_not_refused_applies_all(zk: ZooKeeperClient) -> None:
    zk.create("/b")
    zk.create("/old")
    ops: list[Op] = [Check("/b", 0), Set("/b", b"changed", 0), Create("/new", b"n", ephemeral=True), Delete("/old")]
    assert zk.multi(ops) is None
    assert zk.multi([]) is None
    assert (zk.get("/b"), zk.get("/new"), zk.exists("/old")) == ((b"changed", 1), (b"n", 0), False)


def test_a_tree_is_deleted_whole_or_below_its_root_and_deleting_nothing_is_fine(zk: ZooKeeperClient) -> None:
    zk.create("/t")
    for name in ("a", "b"):
        zk.create(f"/t/{name}")
        assert zk.multi([Create(f"/t/{name}/{n}") for n in range(700)]) is None
    zk.delete_tree("/t/a", below=True)
    assert (zk.children("/t/a"), len(zk.children("/t/b") or ())) == ([], 700)
    zk.delete_tree("/t")
    zk.delete_tree("/t")
    assert not zk.exists("/t")


def test_a_tree_that_others_add_to_and_take_from_meanwhile_is_deleted_all_the_same(zk: ZooKeeperClient) -> None:
    for path in ("/t", "/t/a", "/t/b", "/t/b/c"):
        zk.create(path)
    between = Interposed(zk)

    def meanwhile() -> None:
        zk.create("/t/a/late")
        zk.delete("/t/b/c")

    between.before = meanwhile
    between.delete_tree("/t")
    assert not zk.exists("/t")


def test_a_tree_that_grows_without_end_is_given_up(zk: ZooKeeperClient) -> None:
    zk.create("/t")
    between, numbers = Interposed(zk), itertools.count()

    def again() -> None:
        zk.create(f"/t/{next(numbers)}")
        between.before = again

    between.before = again
    with pytest.raises(BadVersion, match="again and again"):
        between.delete_tree("/t")
