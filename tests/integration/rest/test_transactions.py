"""Publishing in transactions, storing for later and rolling back, as the original's client and service do it."""

from __future__ import annotations

import pytest

from delivery import connect
from tests.integration.embedded import eventually
from tests.integration.several import Several, Watcher
from tests.topics import Polled, Topics, fresh_pointer, publish_bytes, read_long, transaction

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(topics: Topics) -> str:
    assert topics.create("t").status == 200
    return "t"


def longs(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = read_long(data, at)
        found.append(number)
    return found


def test_a_publish_in_a_transaction_answers_with_its_range_and_is_seen_at_once_outside(
    topics: Topics, topic: str
) -> None:
    tx = fresh_pointer()
    answer = topics.post(topic, "publish", publish_bytes(b"a", b"b", tx=tx))
    assert (answer.status, answer.headers["content-type"]) == (200, "avro/binary")
    first, second = topics.poll(topic)
    expected = [int.from_bytes(one.id[a:b]) for one in (first, second) for a, b in ((0, 8), (8, 10))]
    assert longs(answer.body) == [0, tx, *expected]
    assert [first.payload, second.payload] == [b"a", b"b"]


def test_an_empty_publish_in_a_transaction_is_one_place(topics: Topics, topic: str) -> None:
    tx = fresh_pointer()
    _, pointer, start_ms, start, end_ms, end = longs(topics.publish(topic, tx=tx))
    assert (pointer, start_ms, start) == (tx, end_ms, end)
    assert topics.poll(topic) == []


def test_readers_in_transactions_take_what_is_committed_skip_what_is_invalid_and_stop_at_what_is_in_progress(
    topics: Topics, topic: str
) -> None:
    done, bad, open_one, own = (fresh_pointer(number) for number in range(4))
    topics.publish(topic, b"plain")
    topics.publish(topic, b"done", tx=done)
    topics.publish(topic, b"bad", tx=bad)
    topics.publish(topic, b"own", tx=own)
    topics.publish(topic, b"open", tx=open_one)
    topics.publish(topic, b"behind")
    reader = transaction(own, own - 1, invalid=[bad], in_progress=[open_one])
    assert topics.bodies(topic, tx=reader) == [b"plain", b"done", b"own"]
    assert topics.bodies(topic, tx=transaction(own, own - 1, invalid=[bad])) == [
        b"plain", b"done", b"own", b"open", b"behind"
    ]  # fmt: skip
    assert topics.bodies(topic, tx=reader, limit=2) == [b"plain", b"done"]
    excluding = transaction(own, own - 1, invalid=[bad], visibility=2)
    assert topics.bodies(topic, tx=excluding) == [b"plain", b"done"]
    assert topics.bodies(topic) == [b"plain", b"done", b"bad", b"own", b"open", b"behind"]


def test_what_is_rolled_back_is_skipped_in_transactions_and_stays_outside_with_the_same_ids(
    topics: Topics, topic: str
) -> None:
    tx = fresh_pointer()
    kept = topics.publish(topic, b"kept", tx=tx)
    record = topics.publish(topic, b"gone 1", b"gone 2", tx=tx)
    topics.publish(topic, b"plain")
    before = topics.poll(topic)
    reader = transaction(tx + 9, tx - 1, in_progress=[tx])
    assert topics.bodies(topic, tx=reader) == []
    for _ in range(2):
        assert (topics.rollback(topic, record).status, topics.rollback(topic, record).body) == (200, b"")
    assert topics.poll(topic) == before
    assert topics.bodies(topic, tx=transaction(tx + 9, tx + 8)) == [b"kept", b"plain"]
    assert topics.bodies(topic, tx=transaction(tx, tx - 1)) == [b"kept", b"plain"]
    assert topics.rollback(topic, kept).status == 200
    assert topics.bodies(topic, tx=reader) == [b"plain"]


def test_stored_bodies_appear_together_at_the_publish_with_an_id_each(topics: Topics, topic: str) -> None:
    tx = fresh_pointer()
    topics.store(topic, b"p1", b"p2", tx=tx)
    topics.store(topic, b"other", tx=tx + 1)
    topics.publish(topic, b"before")
    topics.store(topic, b"", b"p4", tx=tx)
    topics.publish(topic, b"inline", tx=tx)
    assert topics.bodies(topic) == [b"before", b"inline"]
    record = topics.publish(topic, tx=tx)
    topics.publish(topic, b"after")
    found = topics.poll(topic)
    assert [one.payload for one in found] == [b"before", b"inline", b"p1", b"p2", b"", b"p4", b"after"]
    group = found[2:6]
    _, _, ms, sequence, _, _ = longs(record)
    assert {one.id[:10] for one in group} == {ms.to_bytes(8) + sequence.to_bytes(2)}
    assert [one.id for one in found] == sorted({one.id for one in found})
    assert all(int.from_bytes(one.id[10:18]) <= ms for one in group)
    reader = transaction(tx + 9, tx + 8)
    assert topics.poll(topic, tx=reader) == found
    topics.rollback(topic, record)
    assert topics.poll(topic) == found
    assert topics.bodies(topic, tx=reader) == [b"before", b"inline", b"after"]


def test_paging_through_a_stored_group_loses_nothing(topics: Topics, topic: str) -> None:
    tx = fresh_pointer()
    for number in range(10):
        topics.store(topic, b"%da" % number, b"%db" % number, tx=tx)
    topics.publish(topic, tx=tx)
    topics.publish(topic, b"n")
    everything = topics.poll(topic)
    assert len(everything) == 21
    for limit in (1, 2, 6, 20):
        pages: list[Polled] = []
        start: bytes | None = None
        while page := topics.poll(topic, start, inclusive=start is None, limit=limit):
            assert len(page) <= limit
            pages += page
            start = page[-1].id
        assert pages == everything
    for place in (0, 7, 19, 20):
        assert topics.poll(topic, everything[place].id) == everything[place:]
        assert topics.poll(topic, everything[place].id, inclusive=False) == everything[place + 1 :]


def test_a_transaction_older_than_25_hours_publishes_and_stores_nothing(topics: Topics, topic: str) -> None:
    for tx in (0, -1, 1, fresh_pointer(-90_001 * 10**9)):
        answer = topics.post(topic, "publish", publish_bytes(b"late", tx=tx))
        assert answer.status == 500
        assert b"25 hours" in answer.body
        assert topics.post(topic, "store", publish_bytes(b"late", tx=tx)).status == 500
    assert topics.post("none", "publish", publish_bytes(b"late", tx=0)).status == 404
    topics.publish(topic, b"young", tx=fresh_pointer(-89_990 * 10**9))
    assert topics.bodies(topic) == [b"young"]


def test_a_topic_made_again_knows_nothing_of_what_was_stored_and_rolled_back(topics: Topics, topic: str) -> None:
    tx = fresh_pointer()
    topics.store(topic, b"old", tx=tx)
    record = topics.publish(topic, b"old", tx=tx)
    topics.call("DELETE", f"/{topic}")
    assert topics.rollback(topic, record).status == 404
    topics.create(topic)
    topics.publish(topic, b"new", tx=tx)
    assert topics.rollback(topic, record).status == 200
    topics.publish(topic, tx=tx)
    assert topics.bodies(topic) == topics.bodies(topic, tx=transaction(tx, tx)) == [b"new"]


def test_a_host_that_takes_over_knows_all_of_it(topics: Topics, topic: str, hosts: Several, namespace: str) -> None:
    tx = fresh_pointer()
    topics.store(topic, b"stored", tx=tx)
    topics.rollback(topic, topics.publish(topic, b"gone", tx=tx))
    hosts.processes[0].kill()
    before = len(hosts.hosts)
    hosts.processes[0].start()
    (host,) = [one for one in hosts.catalog.hosts() if one.host not in {each.host for each in hosts.hosts[:before]}]
    hosts.hosts[0] = host
    assert host.http_port is not None
    other = Topics(host.address, host.http_port, namespace)
    other.publish(topic, tx=tx)
    other.store(topic, b"too late", tx=tx)
    assert other.bodies(topic) == [b"gone", b"stored"]
    assert other.bodies(topic, tx=transaction(tx, tx)) == [b"stored"]
    other.close()


def test_subscribers_and_scanners_get_messages_and_none_of_the_bookkeeping(
    topics: Topics, topic: str, hosts: Several, namespace: str
) -> None:
    queue, tx = f"{namespace}.{topic}", fresh_pointer()
    topics.store(topic, b"stored", tx=tx)
    with connect(hosts.zookeeper) as client, Watcher(hosts.zookeeper, queue) as watcher:
        topics.publish(topic, b"one")
        topics.rollback(topic, topics.publish(topic, b"two", tx=tx))
        topics.publish(topic, tx=tx)
        topics.publish(topic, b"three")
        with client.queue(queue).scanner(start="earliest") as scanner:
            scanned = list(scanner)
        assert [message.body for message in scanned] == topics.bodies(topic) == [b"one", b"two", b"stored", b"three"]
        eventually(lambda: watcher.distinct() == 4, "four messages are pushed")
        assert watcher.ids() == {0: [message.number for message in scanned]}


def test_what_a_transaction_stored_comes_with_its_commit_to_who_wants_what_is_committed(
    topics: Topics, topic: str, hosts: Several, namespace: str
) -> None:
    queue, committed = f"{namespace}.{topic}", {"isolation": "committed"}
    with connect(hosts.zookeeper) as client, Watcher(hosts.zookeeper, queue, **committed) as watcher:

        def scanned() -> list[bytes]:
            with client.queue(queue).scanner(start="earliest", isolation="committed") as scanner:
                return [message.body for message in scanner]

        kept, undone = (client.transactions.begin(600_000).pointer for _ in range(2))
        for tx in (kept, undone):
            topics.store(topic, b"p1", b"p2", tx=tx)
            topics.store(topic, b"p3", tx=tx)
        topics.publish(topic, b"before")
        record = topics.publish(topic, tx=undone)
        topics.publish(topic, tx=kept)
        topics.publish(topic, b"behind")
        eventually(lambda: watcher.distinct() == 1, "the message before is pushed")
        assert scanned() == [b"before"]
        topics.rollback(topic, record)
        client.transactions.abort(undone)
        client.transactions.commit(kept, [])
        eventually(lambda: watcher.distinct() == 5, "the group and the message behind it are pushed")
        assert scanned() == [b"before", b"p1", b"p2", b"p3", b"behind"]
        assert [len(ids) for ids in watcher.ids().values()] == [5]
