"""Topics: made, changed, shown, listed and deleted, with the status codes and bodies of the original."""

from __future__ import annotations

import json

import pytest

from delivery import connect
from delivery.model import QueueSettings
from tests.integration.embedded import eventually
from tests.integration.rest.conftest import client_of
from tests.integration.several import Several, Watcher
from tests.topics import Answer, Topics, fresh_pointer, poll_bytes, publish_bytes, read_polled

pytestmark = pytest.mark.integration


def is_empty(answer: Answer) -> bool:
    return (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0") and (
        "content-type" not in answer.headers
    )


def shown(topics: Topics, topic: str) -> dict[str, str]:
    answer = topics.call("GET", f"/{topic}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    found: dict[str, str] = json.loads(answer.body)
    return found


def test_a_topic_is_made_changed_and_deleted(topics: Topics, namespace: str) -> None:
    missing = (404, f"Topic {namespace}:t does not exist.".encode())
    for method, path in (("GET", "/t"), ("DELETE", "/t"), ("PUT", "/t/properties")):
        answer = topics.call(method, path, b"{}" if method == "PUT" else None)
        assert (answer.status, answer.body) == missing
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert is_empty(topics.create("t", b""))
    assert shown(topics, "t") == {"ttl": "604800", "generation": "1"}
    again = topics.create("t")
    assert (again.status, again.body) == (409, f"Topic {namespace}:t already exists.".encode())
    assert is_empty(topics.call("PUT", "/t/properties", b'{"ttl":100,"k":true,"generation":"9","x":1.50}'))
    assert shown(topics, "t") == {"ttl": "100", "generation": "1", "k": "true", "x": "1.50"}
    assert is_empty(topics.call("PUT", "/t/properties", b"{}"))
    assert shown(topics, "t") == {"ttl": "604800", "generation": "1"}
    assert is_empty(topics.call("DELETE", "/t"))
    assert topics.call("DELETE", "/t").status == 404


def test_each_new_topic_of_a_name_has_the_next_generation_its_own_properties_and_none_of_the_old_messages(
    topics: Topics,
) -> None:
    for generation in range(1, 11):  # MessagingHttpServiceTest.testDeletes
        assert topics.create("t", b'{"ttl": "%d"}' % (generation * 100)).status == 200
        assert shown(topics, "t") == {"ttl": str(generation * 100), "generation": str(generation)}
        topics.publish("t", b"a%d" % generation, b"b%d" % generation)
        assert topics.bodies("t") == [b"a%d" % generation, b"b%d" % generation]
        assert topics.call("DELETE", "/t").status == 200
        assert topics.post("t", "poll", b"\x04\x01\x02\x02").status == 404


@pytest.mark.parametrize(
    "properties",
    [b'{"a":"\\ud800"}', b'{"\\udc00":"b"}',
     b'{"ttl":"0"}', b'{"ttl":-5}', b'{"ttl":"soon"}', b'{"ttl":3000000000}', b'{"ttl":1.5}', b'{"a":{}}', b'{"a":[1]}',
     b"[]", b'"text"', b"{} {}", b'{"a":1,"a":2}', b"null", b'{"a":null}', b"\xff", b"{", b"NaN", b'{"a":NaN}',
     b"[" * 100_000],
)  # fmt: skip
def test_properties_that_cannot_be_are_refused_before_the_topic_is_looked_for(
    topics: Topics, properties: bytes
) -> None:
    assert topics.create("t", properties).status == 400
    assert topics.call("PUT", "/none/properties", properties).status == 400
    assert topics.call("GET").body == b"[]"


def test_a_topic_of_several_partitions_is_polled_one_by_one_and_pushed_from_all(
    topics: Topics, hosts: Several, namespace: str
) -> None:
    for wrong in ("0", "32768", "many", "-1", "1.5", ""):
        assert topics.call("PUT", f"/t?partitions={wrong}").status == 400
    assert is_empty(topics.call("PUT", "/t?partitions=3", b'{"ttl": 100}'))
    assert shown(topics, "t") == {"ttl": "100", "generation": "1", "partitions": "3"}
    topics.call("PUT", "/t/properties", b'{"partitions": 9}')
    assert shown(topics, "t") == {"ttl": "604800", "generation": "1", "partitions": "3"}

    def polled(partition: int) -> list[bytes]:
        answer = topics.post("t", f"poll?partition={partition}", poll_bytes())
        assert answer.status == 200
        return [one.payload for one in read_polled(answer.body)]

    tx = fresh_pointer()
    with Watcher(hosts.zookeeper, f"{namespace}.t") as watcher:
        for number in range(3):
            assert topics.post("t", f"publish?partition={number}", publish_bytes(b"%d" % number)).status == 200
        topics.store("t", b"stored", tx=tx)
        record = topics.publish("t", tx=tx)
        assert sorted(polled(0) + polled(1) + polled(2)) == [b"0", b"1", b"2", b"stored"]
        eventually(lambda: watcher.distinct() == 4, "all of it is pushed")
    assert topics.rollback("t", record).status == 200
    for query in ("", "?partition=3", "?partition=x", "?partition=-1", "?partition="):
        assert topics.post("t", f"poll{query}", poll_bytes()).status == 400, query
        if query:
            assert topics.post("t", f"publish{query}", publish_bytes(b"a")).status == 400, query
            assert topics.post("t", f"store{query}", publish_bytes(b"a", tx=tx)).status == 400, query
    assert topics.post("none", "poll?partition=3", poll_bytes()).status == 404
    assert sorted(polled(0) + polled(1) + polled(2)) == [b"0", b"1", b"2", b"stored"]
    assert topics.call("DELETE", "/t").status == 200
    assert is_empty(topics.create("t"))
    assert shown(topics, "t")["generation"] == "2"
    assert topics.bodies("t") == []


def test_topics_are_listed_by_namespace_and_reached_through_no_other(
    topics: Topics, hosts: Several, namespace: str
) -> None:
    other = client_of(hosts, 0, f"{namespace}x")
    assert (topics.call("GET").status, topics.call("GET").body) == (200, b"[]")
    for name in ("b-1", "a_2", "B"):
        topics.create(name)
    other.create("a_2")
    hosts.catalog.create_queue(f"{namespace}.queue", QueueSettings())
    topics.publish("a_2", b"here")
    assert json.loads(topics.call("GET").body) == ["B", "a_2", "b-1"]
    assert json.loads(other.call("GET").body) == ["a_2"]
    assert other.bodies("a_2") == []
    assert other.call("DELETE", "/a_2").status == 200
    assert topics.bodies("a_2") == [b"here"]
    other.close()


def test_a_queue_that_is_no_topic_is_none_and_keeps_its_name(topics: Topics, hosts: Several, namespace: str) -> None:
    hosts.catalog.create_queue(f"{namespace}.queue", QueueSettings())
    for method in ("GET", "DELETE"):
        assert topics.call(method, "/queue").status == 404
    assert topics.post("queue", "publish", b"\x02\x02\x02a\x00").status == 404
    assert topics.create("queue").status == 409
    assert hosts.catalog.queue(f"{namespace}.queue").topic is None


@pytest.mark.parametrize("name", ["a.b", "a%20b", "%C3%A4", "a%0A", "t" * 300, "a%2Eb", "%00"])
def test_names_by_the_seeds_rule_after_percent_decoding(topics: Topics, hosts: Several, name: str) -> None:
    assert topics.create(name).status == 400
    wrong = client_of(hosts, 0, name)
    assert wrong.create("t").status == 400
    assert wrong.call("GET").status == 400
    wrong.close()
    assert topics.create("%61b").status == 200
    assert json.loads(topics.call("GET").body) == ["ab"]


def test_a_topic_is_a_queue_that_subscribers_and_scanners_know(topics: Topics, hosts: Several, namespace: str) -> None:
    topics.create("t", b'{"ttl": 60}')
    topics.publish("t", b"over http")
    with connect(hosts.zookeeper) as client:
        queue = client.queue(f"{namespace}.t")
        assert queue.settings.ttl_seconds == 60 + 90_000
        queue.put(b"over thrift")
        assert topics.bodies("t") == [b"over http", b"over thrift"]
        client.update_queue(f"{namespace}.t", retention_bytes=1 << 30)
    assert shown(topics, "t") == {"ttl": "60", "generation": "1"}
