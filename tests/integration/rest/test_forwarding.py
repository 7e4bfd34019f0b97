"""Two hosts: a request for a topic that the other one owns is handed on, and its answer handed back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

import pytest

from delivery.embedded import EmbeddedZooKeeper
from tests.integration.embedded import eventually
from tests.integration.rest.conftest import client_of, several_on
from tests.integration.several import Several
from tests.topics import AVRO, Topics, fresh_pointer, poll_bytes, publish_bytes, read_polled, transaction

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def pair(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    with several_on(zookeeper, tmp_path_factory.mktemp("pair"), 2) as running:
        yield running


@pytest.fixture
def both(pair: Several, namespace: str) -> Iterator[tuple[Topics, Topics]]:
    """A client of the host that owns topic `t`, and one of the other."""
    clients = [client_of(pair, number, namespace) for number in range(2)]
    clients[0].create("t")
    clients[0].publish("t", b"first")
    owner = pair.owner(f"{namespace}.t", 0)
    yield clients[owner], clients[1 - owner]
    for client in clients:
        client.close()


def test_every_call_is_answered_alike_by_either_host(both: tuple[Topics, Topics]) -> None:
    owner, other = both
    tx = fresh_pointer()
    assert other.post("t", "publish", publish_bytes(b"second")).body == b""
    other.store("t", b"stored", tx=tx)
    record = other.publish("t", tx=tx)
    assert other.rollback("t", other.publish("t", b"gone", tx=tx)).status == 200
    for reader in (None, transaction(tx, tx)):
        assert other.poll("t", tx=reader) == owner.poll("t", tx=reader)
    assert other.bodies("t", tx=transaction(tx, tx)) == [b"first", b"second", b"stored"]
    assert len(record) > 20


def test_a_topic_of_several_partitions_is_served_by_both(both: tuple[Topics, Topics]) -> None:
    assert both[0].call("PUT", "/several?partitions=4").status == 200
    bodies = [b"%d" % number for number in range(40)]
    for number, body in enumerate(bodies):
        both[number % 2].publish("several", body)
    tx = fresh_pointer()
    both[0].store("several", b"stored", tx=tx)
    record = both[1].publish("several", tx=tx)

    def everything(client: Topics, reader: bytes | None = None) -> list[bytes]:
        answers = [client.post("several", f"poll?partition={number}", poll_bytes(tx=reader)) for number in range(4)]
        return sorted(one.payload for answer in answers for one in read_polled(answer.body))

    assert everything(both[0]) == everything(both[1]) == sorted([*bodies, b"stored"])
    assert both[0].rollback("several", record).status == 200
    assert everything(both[1], transaction(tx, tx)) == sorted(bodies)


def test_an_answer_that_is_handed_back_is_chunked_and_whole(both: tuple[Topics, Topics]) -> None:
    owner, other = both
    for _ in range(20):
        owner.publish("t", b"x" * 50_000)
    answer = other.post("t", "poll", poll_bytes())
    assert (answer.headers["content-type"], answer.headers["transfer-encoding"]) == (AVRO, "chunked")
    assert answer.body == owner.post("t", "poll", poll_bytes()).body


def test_headers_that_mean_nothing_are_handed_on_as_they_are(both: tuple[Topics, Topics]) -> None:
    for host in both:
        answer = host.call("POST", "/t/poll", poll_bytes(), content_type=AVRO, accept="text/caf\xe9, avro/binary")
        assert (answer.status, answer.headers["content-type"]) == (200, AVRO)


def test_encodings_and_errors_come_through(both: tuple[Topics, Topics], namespace: str) -> None:
    _, other = both
    other.publish("t", b"a")
    found = other.call("POST", "/t/poll", b'{"limit": 1}', content_type="application/json")
    assert len(json.loads(found.body)) == 1
    refused = other.call("POST", "/t/poll", b'{"limit": 0}', content_type="application/json")
    assert (refused.status, json.loads(refused.body)["code"]) == (400, "invalid_request")
    late = other.post("t", "publish", publish_bytes(b"a", tx=1))
    assert (late.status, late.headers["content-type"]) == (500, "text/plain; charset=utf-8")


def test_a_poll_may_wait_at_another_host(both: tuple[Topics, Topics], pair: Several) -> None:
    owner, other = both
    last = owner.poll("t")[-1].id
    assert other.call("POST", "/t/poll?wait=0.05", poll_bytes(last, inclusive=False), content_type=AVRO).body == b"\0"
    with ThreadPoolExecutor(1) as waiting:
        ask = poll_bytes(last, inclusive=False)
        found = waiting.submit(other.call, "POST", "/t/poll?wait=60", ask, content_type=AVRO)
        eventually(lambda: waits(pair) == [1, 1], "both hosts know of the poll")
        owner.publish("t", b"news")
        assert [one.payload for one in read_polled(found.result().body)] == [b"news"]
    other.ask("POST", "/t/poll?wait=60", poll_bytes(2**62), content_type=AVRO)
    eventually(lambda: waits(pair) == [1, 1], "both hosts know of the poll")
    other.close()
    eventually(lambda: waits(pair) == [0, 0], "it is over at both")


def waits(pair: Several) -> list[int]:
    """How many polls wait at each host."""
    found = []
    for host in pair.hosts:
        with urlopen(f"http://{host.address}:{host.http_port}/metrics", timeout=60) as answer:
            (line,) = [one for one in answer.read().decode().splitlines() if one.startswith("hoot_waiting_polls ")]
        found.append(int(float(line.split()[1])))
    return found


def test_a_request_is_handed_on_once(both: tuple[Topics, Topics]) -> None:
    _, other = both
    marked = other.call("POST", "/t/poll", poll_bytes(), content_type=AVRO, hoot_forwarded_by="someone")
    assert marked.status == 503
    assert marked.headers["retry-after"] == "1"
    assert other.bodies("t") == [b"first"]


def test_topics_are_managed_on_any_host_and_known_on_all(both: tuple[Topics, Topics]) -> None:
    owner, other = both
    assert other.create("t").status == 409
    assert other.call("PUT", "/t/properties", b'{"ttl": 5}').status == 200
    assert json.loads(owner.call("GET", "/t").body)["ttl"] == "5"
    assert json.loads(owner.call("GET").body) == json.loads(other.call("GET").body) == ["t"]
    assert other.call("DELETE", "/t").status == 200
    assert owner.call("GET", "/t").status == 404
    assert other.post("t", "poll", poll_bytes()).status == 404


def test_a_host_that_stops_answers_the_polls_that_wait(
    both: tuple[Topics, Topics], pair: Several, namespace: str
) -> None:
    """The last one here: it stops a host."""
    owner, _ = both
    last = owner.poll("t")[-1].id
    with ThreadPoolExecutor(1) as waiting:
        ask = poll_bytes(last, inclusive=False)
        found = waiting.submit(owner.call, "POST", "/t/poll?wait=60", ask, content_type=AVRO)
        eventually(lambda: sum(waits(pair)) == 1, "the poll waits")
        pair.processes[pair.owner(f"{namespace}.t", 0)].stop()
        assert (found.result().status, found.result().body) == (200, b"\0")
