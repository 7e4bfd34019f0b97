"""Dead letters end to end: a message that no listener takes, a real host, and the commands for what it gave up."""

from __future__ import annotations

import threading

import pytest

from delivery import Client, NewMessage
from delivery.metastore.policy import Order
from subscriber import Message, Reject, RetryPolicy, Subscriber
from tests.integration.cli.running import Hoot
from tests.integration.embedded import eventually
from tests.integration.engine import Engine
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration

QUICK = RetryPolicy(first_seconds=0.05, deliveries_max=3)


class Picky:
    """A listener that takes everything but what it is told not to."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.wrong = {b"poison"}
        self.rejected = {b"junk"}
        self.tries = 0

    def __call__(self, message: Message) -> Reject | None:
        if message.body in self.rejected:
            return Reject("it is junk")
        if message.body in self.wrong:
            self.tries += 1
            raise ValueError(f"try {self.tries}")
        self.bodies.append(message.body)
        return None


def test_poison_stops_nothing_is_kept_as_it_was_and_can_be_sent_back(running: Engine, client: Client) -> None:
    queue = client.create_queue("orders", partitions=2)
    picky = Picky()
    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe("orders", start="earliest", retry=QUICK, listener=picky)
    queue.put(b"before", partition=1)
    stored = queue.put_many([
        NewMessage(b"poison", key=b"k", topic="t", headers={"h": b"v"}, partition=1),
        NewMessage(b"junk", partition=1),
        NewMessage(b"behind", partition=1),
    ])  # fmt: skip
    hoot = Hoot(running.address)
    with subscriber:
        eventually(lambda: picky.bodies == [b"before", b"behind"], "what is behind the poison")
        assert picky.tries == 3
        found = hoot.json("dlq", "list", "orders", "mail")
        assert [(one["message"], one["reason"], one["failures"]) for one in found] == [
            (str(stored[0].id), "failed 3 times", 3), (str(stored[1].id), "rejected", 1),
        ]  # fmt: skip
        assert (found[0]["first_error"], found[0]["last_error"]) == ("ValueError: try 1", "ValueError: try 3")
        assert (found[0]["partition"], found[0]["key"], found[0]["topic"], found[0]["body"]) == (1, "k", "t", "poison")
        assert found[0]["headers"] == {"h": "v"}
        assert "Reject: it is junk" in hoot("dlq", "show", "orders", "mail", "--id", found[1]["id"]).stdout

        explain = ("subscription", "explain", "orders", "mail", "--message", found[1]["message"])
        [told] = hoot.json(*explain)["explanations"]
        names = ("id", "time", "reason", "failures", "last_error")
        assert told["dead_letters"] == [{"queue": "orders.mail.dlq", **{name: found[1][name] for name in names}}]
        assert f"rejected (Reject: it is junk); it is {found[1]['id']} in orders.mail.dlq" in hoot(*explain).stdout
        hoot.refused("dlq", "drop", "orders", "mail", status=2)
        hoot.refused("dlq", "redrive", "orders", "mail", "--id", "1-1", "--yes", status=2)
        assert hoot.json("dlq", "drop", "orders", "mail", "--dry-run")["dropped"] is False
        assert len(client.dead_letters("orders", "mail").letters()) == 2
        hoot("dlq", "drop", "orders", "mail", "--id", found[1]["id"], "--yes")
        picky.wrong.clear()
        hoot("dlq", "redrive", "orders", "mail", "--yes")
        eventually(lambda: picky.bodies[2:] == [b"poison"], "the poison, which is none any more")
    assert client.dead_letters("orders", "mail").letters() == []
    *_, last = queue.scanner()
    assert (last.key, last.topic, last.headers, last.partition) == (b"k", "t", {"h": b"v"}, 1)


def test_a_host_killed_while_it_gives_a_message_up_loses_nothing(running: Engine, client: Client) -> None:
    client.create_queue("payments")
    handled: list[bytes] = []
    tries = threading.Semaphore(0)

    def listener(message: Message) -> None:
        if message.body.startswith(b"poison"):
            tries.release()
            raise ValueError
        handled.append(message.body)

    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe("payments", start="earliest", retry=QUICK, listener=listener)
    with subscriber:
        for number in range(3):
            client.queue("payments").put_many([b"poison %d" % number, b"fine %d" % number])
            assert tries.acquire(timeout=30)
            running.host.kill()
            running.host.start()
        eventually(lambda: {b"fine 0", b"fine 1", b"fine 2"} <= set(handled), "what is behind each", 60)
    letters = client.dead_letters("payments", "mail").letters()
    assert {letter.stored.body for letter in letters} == {b"poison 0", b"poison 1", b"poison 2"}


@pytest.mark.parametrize("order", ["partition", "key"])
def test_a_dead_letter_that_cannot_be_stored_holds_up_what_is_behind_it_and_the_verdict_says_why(
    running: Engine, client: Client, order: Order
) -> None:
    queue = client.create_queue(f"large-{order}", partitions=1)
    kept = client.create_queue(f"large-{order}.mail.dlq", body_bytes_max=1)
    picky = Picky()
    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe(queue.name, start="earliest", retry=RetryPolicy(order=order), listener=picky)
    queue.put_many([NewMessage(body, key=b"k") for body in (b"junk", b"behind")])
    with subscriber:
        assert "a body of 4 bytes" in judged(client, queue.name, "mail", "store_slow").verdict.text
        assert picky.bodies == []
        client.update_queue(kept.name, body_bytes_max=1000)
        eventually(lambda: picky.bodies == [b"behind"], "what is behind it, once it is stored", 60)
    assert [one.stored.body for one in client.dead_letters(queue.name, "mail").letters()] == [b"junk"]


def test_a_subscription_without_dead_letters_lists_none_and_what_is_not_there_is_named(
    running: Engine, client: Client
) -> None:
    client.create_queue("quiet")
    client.create_subscription("quiet", "mail")
    hoot = Hoot(running.address)
    assert hoot.json("dlq", "list", "quiet", "mail") == []
    assert "no dead letters" in hoot("dlq", "list", "quiet", "mail").stderr
    assert "no dead letters" in hoot("dlq", "show", "quiet", "mail").stderr
    assert hoot.refused("dlq", "list", "quiet", "male")["error"] == "unknown_subscription"
    assert hoot.refused("dlq", "list", "quite", "mail")["error"] == "unknown_queue"


def test_what_others_put_into_a_queue_of_dead_letters_is_no_dead_letter(running: Engine, client: Client) -> None:
    """By hand, or since names with dots in them can mean the same queue."""
    client.create_queue("eu.orders")
    client.create_queue("eu")
    client.create_subscription("eu", "orders.mail")
    queue = client.create_queue("eu.orders.mail.dlq")
    queue.put(b"by hand")
    client.queue("eu.orders").put(b"junk")
    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe("eu.orders", start="earliest", listener=Picky())
    ours = client.dead_letters("eu.orders", "mail")
    with subscriber:
        eventually(lambda: [one.stored.body for one in ours.letters()] == [b"junk"], "the dead letter")
    theirs = client.dead_letters("eu", "orders.mail")
    assert theirs.letters() == []
    hoot = Hoot(running.address)
    assert hoot("dlq", "redrive", "eu.orders", "mail", "--yes").stdout == "1 dead letter redriven\n"
    assert ours.letters() == []
