"""The transaction service over HTTP and from Python: what readers see, what is refused, a manager that is killed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from contextlib import closing

import pytest

from delivery import Client, connect
from delivery.client import Transaction
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import Closed, UnknownQueue
from delivery.messaging.marks import header
from delivery.rpc.blocking import BlockingConnection
from delivery.transactions.errors import TransactionConflict, TransactionFinished, TransactionInvalid
from tests.integration.embedded import eventually
from tests.integration.rest.conftest import Service, address_of, client_of, several_on
from tests.topics import Topics, publish_bytes

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(topics: Topics) -> str:
    assert topics.create("t").status == 200
    return "t"


def test_readers_stop_at_what_is_in_progress_and_see_it_after_the_commit(
    service: Service, topics: Topics, topic: str
) -> None:
    writer, mine = service.begin()
    topics.publish(topic, b"before")
    topics.publish(topic, b"one", b"two", tx=writer)
    topics.publish(topic, b"behind")
    _, early = service.begin()
    everything = [b"before", b"one", b"two", b"behind"]
    assert topics.bodies(topic) == topics.bodies(topic, tx=mine) == everything
    assert topics.bodies(topic, tx=early) == topics.bodies(topic, tx=service.look()) == [b"before"]
    assert service.call("GET", f"/{writer}") == (200, {"state": "in_progress"})
    for _ in range(2):
        assert service.call("POST", f"/{writer}/commit") == (200, None)
    assert service.call("GET", f"/{writer}") == (200, {"state": "committed"})
    assert topics.bodies(topic, tx=service.begin()[1]) == topics.bodies(topic, tx=service.look()) == everything
    assert topics.bodies(topic, tx=early) == [b"before"]


def test_the_second_of_two_that_changed_the_same_is_undone(service: Service, topics: Topics, topic: str) -> None:
    (first, _), (second, _) = service.begin(), service.begin()
    topics.publish(topic, b"first", tx=first)
    record = topics.publish(topic, b"second", tx=second)
    changes = {"changes": [base64.b64encode(key).decode() for key in (b"row 1", b"row 2")]}
    assert service.call("POST", f"/{first}/commit", changes)[0] == 200
    status, problem = service.call("POST", f"/{second}/commit", changes)
    assert (status, problem["code"], bool(problem["hint"])) == (409, "transaction_conflict", True)
    topics.rollback(topic, record)
    assert service.call("POST", f"/{second}/abort") == (200, None)
    assert topics.bodies(topic, tx=service.look()) == [b"first"]


def test_an_invalid_one_is_skipped_and_its_end_is_told(service: Service, topics: Topics, topic: str) -> None:
    writer, _ = service.begin()
    topics.publish(topic, b"never", tx=writer)
    topics.publish(topic, b"plain")
    assert service.call("POST", f"/{writer}/invalidate") == (200, None)
    assert topics.bodies(topic, tx=service.look()) == [b"plain"]
    assert service.call("POST", f"/{writer}/commit")[1]["code"] == "transaction_invalid"
    found = service.call("GET")[1]
    assert writer in found["invalid"]
    assert writer <= found["readPointer"]
    short, _ = service.begin(timeout=0.001)
    eventually(lambda: short in service.call("GET")[1]["invalid"], "its time is over")
    assert service.call("POST", f"/{short}/commit")[1]["code"] == "transaction_invalid"


def test_what_has_ended_writes_nothing_more_and_what_is_committed_is_not_taken_back(
    service: Service, topics: Topics, topic: str, client: Client, namespace: str
) -> None:
    queue = client.queue(f"{namespace}.{topic}")
    for end in ("commit", "abort", "invalidate"):
        writer, _ = service.begin()
        record = topics.publish(topic, end.encode(), tx=writer)
        assert service.call("POST", f"/{writer}/{end}")[0] == 200
        for path in ("publish", "store"):
            assert topics.post(topic, path, publish_bytes(b"late", tx=writer)).status == 409, (end, path)
        assert topics.rollback(topic, record).status == (409 if end == "commit" else 200)
        with pytest.raises(TransactionInvalid if end == "invalidate" else TransactionFinished):
            queue.put(b"late", headers=header(writer))
        if end == "commit":
            with BlockingConnection(*address_of(client)) as owner, pytest.raises(TransactionFinished):
                owner.call("rollBack", queue.name, 0, writer)
    body = json.dumps({"transactionWritePointer": service.begin()[0] + 1, "messages": ["YQ=="]}).encode()
    problem = topics.call("POST", f"/{topic}/publish", body, content_type="application/json")
    assert problem.status == 409
    assert json.loads(problem.body)["code"] == "unknown_transaction"
    assert json.loads(problem.body)["hint"]
    assert topics.bodies(topic) == [b"commit", b"abort", b"invalidate"]


def test_what_cannot_be_is_refused_with_a_code_and_a_hint(service: Service) -> None:
    done, _ = service.begin()
    assert service.call("POST", f"/{done}/abort") == (200, None)
    long = [base64.b64encode(b"x" * 40_000).decode()]
    asked: list[tuple[str, str, object, int, str]] = [
        ("POST", "", {"timeout": 601}, 400, "invalid_request"),
        ("POST", "", {"timeout": 0}, 400, "invalid_request"),
        ("POST", "", b"[", 400, "invalid_request"),
        ("POST", "", b"[" * 5000, 400, "invalid_request"),
        ("POST", "/12/commit", None, 404, "unknown_transaction"),
        ("POST", "/12/abort", None, 404, "unknown_transaction"),
        ("GET", "/12", None, 404, "unknown_transaction"),
        ("POST", f"/{done}/commit", None, 409, "transaction_finished"),
        ("POST", f"/{done}/invalidate", None, 409, "transaction_finished"),
        ("POST", f"/{done}/commit", {"changes": "row"}, 400, "invalid_request"),
        ("POST", f"/{done}/commit", {"changes": ["?"]}, 400, "invalid_request"),
        ("POST", f"/{done}/commit", {"changes": ["aa=="] * 1001}, 400, "invalid_request"),
        ("POST", f"/{done}/commit", {"changes": long}, 400, "invalid_request"),
        ("POST", "/0/commit", None, 400, "invalid_request"),
        ("POST", "/-1/commit", None, 400, "invalid_request"),
        ("POST", f"/{2**63}/abort", None, 400, "invalid_request"),
        ("GET", "/x", None, 400, "invalid_request"),
        ("POST", "/prune", None, 400, "invalid_request"),
        ("POST", "/prune", {"before": 2**52}, 400, "invalid_request"),
        ("POST", "/prune", {"before": -1}, 400, "invalid_request"),
    ]
    for method, path, body, status, code in asked:
        found, problem = service.call(method, path, body)
        assert (found, problem["code"]) == (status, code), (path, body, problem)
        assert problem["hint"]
    assert service.call("POST", "/prune", {"before": 1}) == (200, {"pruned": 0})


class Store:
    """A participant that notes what it is asked for, and fails where it is told to."""

    def __init__(self, fails: str = "", changes: Iterable[bytes] = ()) -> None:
        self.seen: list[str] = []
        self._fails, self._changes = fails, changes

    def changes(self) -> Iterable[bytes]:
        return self._changes

    def prepare(self, transaction: Transaction) -> None:
        self._note("prepare")

    def commit(self, transaction: Transaction) -> None:
        self._note("commit")

    def rollback(self, transaction: Transaction) -> None:
        self._note("rollback")

    def _note(self, what: str) -> None:
        self.seen.append(what)
        if what == self._fails:
            raise ValueError(what)


def test_a_transaction_of_a_program_is_seen_whole_or_never(
    client: Client, service: Service, topics: Topics, topic: str, namespace: str
) -> None:
    queue, store = f"{namespace}.{topic}", Store()
    with client.transaction() as tx:
        tx.join(store)
        tx.publish(queue, b"one", key=b"k", headers={"a": b"b"})
        tx.publish(queue, b"two")
        assert topics.bodies(topic) == [], "Hoot is the last participant"
        assert store.seen == []
    assert (tx.state, store.seen) == ("committed", ["prepare", "commit"])
    assert topics.bodies(topic, tx=service.look()) == [b"one", b"two"]
    with pytest.raises(ZeroDivisionError), client.transaction() as tx:  # noqa: PT012 - what it is undone by
        tx.join(store)
        tx.publish(queue, b"never")
        raise ZeroDivisionError
    assert (tx.state, store.seen) == ("aborted", ["prepare", "commit", "rollback"])
    assert topics.bodies(topic) == [b"one", b"two"]
    with pytest.raises(Closed):
        tx.publish(queue, b"late")
    with pytest.raises(UnknownQueue), client.transaction() as tx:
        tx.publish(f"{queue}x", b"nowhere")


def test_what_fails_on_the_way_to_the_commit_undoes_what_was_published(
    client: Client, service: Service, topics: Topics, topic: str, namespace: str
) -> None:
    queue = f"{namespace}.{topic}"
    first, second = Store(), Store(fails="prepare")
    with pytest.raises(ValueError, match="prepare"), client.transaction() as tx:  # noqa: PT012 - as above
        tx.join(first)
        tx.join(second)
        tx.publish(queue, b"never")
    assert (first.seen, second.seen) == (["prepare", "rollback"], ["prepare", "rollback"])
    assert topics.bodies(topic) == []
    client.create_queue(f"{namespace}.other", partitions=3)
    assert not client.queue_record(f"{namespace}.other").transactional
    rival = client.transaction()
    with pytest.raises(TransactionConflict), client.transaction() as tx:  # noqa: PT012 - as above
        tx.join(Store(changes=[b"row"]))
        tx.publish(queue, b"undone")
        for number in range(3):
            tx.publish(f"{namespace}.other", b"undone", partition=number)
        rival.changed(b"row")
        rival.publish(queue, b"done")
        rival.commit()
    assert client.transactions.standing(tx.pointer) == tx.state == "aborted"
    assert client.queue_record(f"{namespace}.other").transactional
    assert topics.bodies(topic) == [b"done", b"undone"]
    assert topics.bodies(topic, tx=service.look()) == [b"done"]
    unable = Store(fails="rollback")
    with pytest.raises(ZeroDivisionError), client.transaction() as tx:  # noqa: PT012 - as above
        tx.join(unable)
        raise ZeroDivisionError
    assert client.transactions.standing(tx.pointer) == tx.state == "invalid"


@pytest.mark.nightly
def test_a_killed_manager_leaves_what_was_committed_and_what_had_begun_goes_on(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory, namespace: str
) -> None:
    with several_on(zookeeper, tmp_path_factory.mktemp("pair"), 2) as pair, connect(pair.zookeeper) as client:
        with closing(Service(pair, 0)) as any_host:
            committed, _ = any_host.begin()
        manager = pair.catalog.transaction_manager()
        dying = [host.host for host in pair.hosts].index(manager.host if manager else "")
        with closing(Service(pair, 1 - dying)) as service, closing(client_of(pair, 1 - dying, namespace)) as topics:
            topics.create("t")
            topics.publish("t", b"committed", tx=committed)
            assert service.call("POST", f"/{committed}/commit") == (200, None), "any host takes it"
            going_on, mine = service.begin()
            of_program = client.transaction()
            of_program.publish(f"{namespace}.t", b"of a program")
            topics.publish("t", b"going on", tx=going_on)
            pair.processes[dying].kill()
            assert service.call("GET", f"/{committed}") == (200, {"state": "committed"})
            assert topics.bodies("t", tx=service.look()) == [b"committed"]
            assert service.begin()[0] > going_on
            assert service.call("POST", f"/{going_on}/commit") == (200, None)
            of_program.commit()
            everything = [b"committed", b"going on", b"of a program"]
            assert topics.bodies("t", tx=service.look()) == everything
            assert topics.bodies("t", tx=mine) == everything[:2]
