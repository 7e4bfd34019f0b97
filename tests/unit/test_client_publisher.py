"""Publishers against hosts that follow a script: each message is stored once and in order, or its failure is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count

import pytest

from delivery.client.accumulator import Limits
from delivery.client.direct import DirectPublisher
from delivery.client.links import ANSWER_SECONDS, SILENT_SECONDS, Link
from delivery.client.publisher import Publisher, Receipt
from delivery.errors import (
    DeadlineExceeded,
    HootError,
    HostUnreachable,
    InvalidRequest,
    NoHost,
    NotOwner,
    StorageUnavailable,
    Throttled,
    UnknownOutcome,
    UnknownQueue,
)
from delivery.metastore.managers.records import OwnerInfo
from tests.scripted_host import Act, FixedCatalog, ScriptedHost, target

SECONDS = 20.0
SMALL = Limits(linger=0.001, batch_messages=3)


def publisher(*hosts: ScriptedHost, limits: Limits = SMALL, timeout: float = SECONDS, in_flight: int = 4) -> Publisher:
    return Publisher(target(*hosts), limits, timeout=timeout, in_flight=in_flight)


def put(of: DirectPublisher, *bodies: bytes, timeout: float = SECONDS) -> list[int]:
    rows = [((body, None, "", b""), len(body), None) for body in bodies]
    return [int(one.id) for one in of.publish(rows, timeout)]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def at(acts: dict[int, Act]) -> Callable[[int], Act]:
    return lambda number: acts.get(number, "store")


@pytest.mark.parametrize(
    "acts",
    [
        {},
        {0: "hang up"},
        {0: "store and hang up"},
        {2: "store and hang up", 3: "hang up", 5: "store and hang up"},
        {1: Throttled("busy"), 2: Throttled("busy")},
        {3: UnknownOutcome("perhaps"), 4: "hang up"},
        {1: "speak HTTP"},
    ],
    ids=["no fault", "first lost", "first answer lost", "several", "throttled", "open", "another program's port"],
)
def test_faults_in_between_leave_every_message_stored_once_and_in_order(acts: dict[int, Act]) -> None:
    bodies = numbered(60)
    with ScriptedHost(at(acts)) as host:
        with publisher(host) as under_test:
            receipts = [under_test.put(body) for body in bodies]
        assert host.bodies == bodies
        assert [int(receipt.id) for receipt in receipts] == list(range(1, 61))
        assert receipts[0].result().durability == "os"


@pytest.mark.parametrize("hop", [False, True], ids=["sent by whoever puts", "sent by the thread"])
def test_batches_are_as_large_as_the_limits_say(hop: bool) -> None:
    with ScriptedHost() as host, Publisher(target(host), Limits(linger=60, batch_messages=10), hop=hop) as under_test:
        receipts = [under_test.put(b"x") for _ in range(25)]
        receipts[19].result(SECONDS)
        assert not receipts[20].done()
        under_test.flush()
        assert host.sizes == [10, 10, 5]


def test_linger_sends_a_batch_that_does_not_fill() -> None:
    with ScriptedHost() as host, publisher(host, limits=Limits(linger=0.01)) as under_test:
        assert under_test.put(b"x").result(SECONDS).id == 1


def test_what_is_refused_fails_alone_and_flush_tells() -> None:
    with ScriptedHost(at({1: InvalidRequest("no")})) as host:
        under_test = publisher(host, limits=Limits(linger=60, batch_messages=2))
        receipts = under_test.put_many(numbered(8))
        with pytest.raises(InvalidRequest, match="no"):
            under_test.flush()
        under_test.flush()
        failed = [receipt for receipt in receipts if _error(receipt)]
        assert failed == receipts[2:4]
        assert host.bodies == [b"0", b"1", b"4", b"5", b"6", b"7"]
        under_test.close()


def test_a_host_that_never_answers_leaves_the_outcome_unknown() -> None:
    with ScriptedHost(lambda number: "ignore") as host:
        under_test = publisher(host, timeout=1.0)
        receipt = under_test.put(b"x")
        with pytest.raises(DeadlineExceeded):
            receipt.result(0.01)
        with pytest.raises(UnknownOutcome):
            receipt.result(SECONDS)
        with pytest.raises(UnknownOutcome):
            under_test.close()


def test_without_any_host_nothing_is_stored_and_the_error_says_why() -> None:
    under_test = publisher(timeout=0.3)
    with pytest.raises(NoHost, match="hoot serve"):
        under_test.put(b"x").result(SECONDS)
    with pytest.raises(NoHost):
        under_test.close()


def test_a_host_that_is_gone_is_an_error_after_which_nothing_is_stored() -> None:
    with ScriptedHost() as host:
        gone = target(host)
    under_test = DirectPublisher(gone)
    with pytest.raises(HostUnreachable):
        put(under_test, b"x", timeout=0.3)
    under_test.close()


def test_the_owner_that_another_host_names_is_followed() -> None:
    with ScriptedHost() as owner, ScriptedHost() as other:
        elsewhere = NotOwner("not me", address="{}:{}".format(*owner.address))
        other._script = lambda number: elsewhere
        under_test = DirectPublisher(target(other))
        assert put(under_test, *numbered(3)) == [1, 2, 3]
        assert put(under_test, b"3") == [4]
        assert (other.published, owner.bodies) == (1, numbered(4))
        under_test.close()


def test_hosts_that_name_each_other_do_not_hold_a_publish_for_ever() -> None:
    with ScriptedHost() as first, ScriptedHost() as second:
        first._script = lambda number: NotOwner("not me", address="{}:{}".format(*second.address))
        second._script = lambda number: NotOwner("not me", address="{}:{}".format(*first.address))
        under_test = DirectPublisher(target(first, second))
        with pytest.raises(NotOwner):
            put(under_test, b"x", timeout=0.5)
        assert first.published + second.published < 40
        under_test.close()


def test_a_new_owner_is_found_in_the_catalog() -> None:
    with ScriptedHost() as old, ScriptedHost() as new:
        catalog = FixedCatalog(old.record, new.record)
        catalog.owned = {0: OwnerInfo(old.record.host, 1, 1)}
        where = target(old)
        where.owners._catalog = catalog
        under_test = DirectPublisher(where)
        put(under_test, b"before")
        catalog.owned = {0: OwnerInfo(new.record.host, 1, 2)}
        old.hang_up()
        old._script = lambda number: NotOwner("not me any more")
        put(under_test, b"after")
        assert new.bodies == [b"after"]
        under_test.close()


@pytest.mark.parametrize("first_lives", [True, False])
def test_a_silent_owner_is_left_as_soon_as_zookeeper_knows_better(first_lives: bool) -> None:
    """A stopped host's kernel keeps its connections open, so nothing breaks by itself."""
    with ScriptedHost() as first, ScriptedHost() as second:
        first.held.clear()
        where = target(first)
        where.owners._catalog = catalog = FixedCatalog(first.record)
        with Publisher(where, SMALL, timeout=SECONDS) as under_test:
            receipt = under_test.put(b"a")
            assert first.received.wait(SECONDS)
            catalog.live = [first.record, second.record] if first_lives else [second.record]
            catalog.owned = {0: OwnerInfo(second.record.host, 1, 2)} if first_lives else {}
            assert receipt.result(ANSWER_SECONDS / 2).id == 1
        assert second.bodies == [b"a"]


def test_a_silent_host_that_may_be_the_owner_is_waited_for() -> None:
    with ScriptedHost() as host, publisher(host) as under_test:
        host.held.clear()
        receipt = under_test.put(b"a")
        with pytest.raises(DeadlineExceeded):
            receipt.result(2.5 * SILENT_SECONDS)
        host.held.set()
        assert receipt.result(SECONDS).id == 1
        assert (host.published, host.bodies) == (1, [b"a"])


def test_an_unknown_queue_is_an_error_at_once() -> None:
    with ScriptedHost(lambda number: UnknownQueue("deleted")) as host:
        under_test = DirectPublisher(target(host))
        with pytest.raises(UnknownQueue):
            put(under_test, b"x")
        under_test.close()


def test_an_idle_connection_that_the_host_closed_costs_nothing() -> None:
    with ScriptedHost() as host:
        under_test = DirectPublisher(target(host))
        put(under_test, b"before")
        host.hang_up()
        assert put(under_test, b"after") == [2]
        under_test.close()


def test_a_connection_that_breaks_while_the_first_batch_of_a_partition_is_sent_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else of that partition is held then, so that nobody but the sending itself knows of it."""
    sends = count()

    def send(link: Link, method: str, *arguments: object) -> int:
        if next(sends) == 0:
            raise HostUnreachable("connection reset by peer")
        return real(link, method, *arguments)

    real = Link.send
    monkeypatch.setattr(Link, "send", send)
    with ScriptedHost() as host, publisher(host, timeout=5) as under_test:
        assert int(under_test.put(b"x").result(SECONDS).id) == 1
        assert host.bodies == [b"x"]


def test_a_host_that_cannot_open_the_partition_is_asked_again_and_nothing_is_stored_when_it_stays_so() -> None:
    with ScriptedHost(lambda number: StorageUnavailable("disk full")) as host:
        under_test = DirectPublisher(target(host))
        with pytest.raises(StorageUnavailable, match="disk full"):
            put(under_test, b"x", timeout=1.5)
        assert host.published > 2
        under_test.close()


def test_many_threads_share_batches() -> None:
    threads, each = 32, 20
    with ScriptedHost() as host:
        under_test = DirectPublisher(target(host))
        host.held.clear()
        found: list[list[int]] = []
        workers = [
            threading.Thread(target=lambda: found.append([put(under_test, b"x")[0] for _ in range(each)]))
            for _ in range(threads)
        ]
        for worker in workers:
            worker.start()
        host.held.set()
        for worker in workers:
            worker.join(SECONDS)
        assert sorted(number for ids in found for number in ids) == list(range(1, threads * each + 1))
        assert all(ids == sorted(ids) for ids in found)
        assert len(host.sizes) < threads * each / 2
        under_test.close()


def _error(receipt: Receipt) -> bool:
    try:
        receipt.result(SECONDS)
    except HootError:
        return True
    return False
