"""Why a message was not delivered, beyond what topics and filters say: parked, left out, or behind a replay's end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delivery.client import Client, NewMessage
from delivery.client.explaining import Explained, Explaining
from delivery.errors import InvalidRequest
from delivery.testing import Engine
from subscriber import Message, Reject, RetryPolicy

BODIES = [b"0", b"1", b"2", b"3"]


@pytest.fixture
def hoot() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def client(hoot: Engine) -> Client:
    """With a queue of one partition, and four messages of two keys."""
    client = hoot.connect()
    client.create_queue("orders").put_many([NewMessage(body, key=b"k%d" % (n % 2)) for n, body in enumerate(BODIES)])
    return client


def told(client: Client, name: str, body: bytes) -> Explained:
    [message] = [one for one in client.queue("orders").scanner() if one.body == body]
    [found] = client.explain("orders", name, message.id)
    return found


def fails_at_one(message: Message) -> None:
    if message.body == b"1":
        raise ValueError("not yet")


def test_what_is_parked_is_not_behind_the_subscription_and_says_why(hoot: Engine, client: Client) -> None:
    subscriber = hoot.subscriber("billing")
    subscriber.subscribe("orders", start="earliest", retry=RetryPolicy(order="key"), listener=fails_at_one)
    subscriber.start()
    hoot.settle()
    hoot.advance(1)  # and it is saved
    zero, one, three = (told(client, "billing", body) for body in (b"0", b"1", b"3"))
    assert (zero.acknowledged, zero.parked) == (True, None)
    assert (one.acknowledged, three.acknowledged) == (False, False)
    assert one.parked is not None
    assert one.parked == three.parked
    assert (one.parked.failures, one.parked.last_error) == (1, "ValueError: not yet")


def test_a_bound_and_a_beginning_with_the_newest_of_each_key_are_told_of_what_they_may_have_left_out(
    hoot: Engine, client: Client
) -> None:
    subscriber = hoot.subscriber("few")
    subscriber.subscribe("orders", start="earliest", bound=1, listener=fails_at_one)
    subscriber.start()
    newest = hoot.subscriber("newest")
    newest.subscribe("orders", start="latest-per-key", listener=fails_at_one)
    newest.start()
    hoot.settle()
    hoot.advance(1)
    assert [told(client, "few", body).passed_by for body in BODIES] == ["bound", "bound", "bound", None]
    assert [told(client, "newest", body).passed_by for body in BODIES] == ["newest"] * 4
    client.queue("orders").put(b"4", key=b"k0")
    hoot.settle()
    hoot.advance(1)
    assert told(client, "newest", b"4").passed_by is None


def test_a_replay_refuses_what_lies_behind_its_end(client: Client) -> None:
    client.create_subscription("orders", "billing", start="earliest")
    [*_, last] = client.queue("orders").scanner()
    client.replay("orders", "billing", "again", start="earliest", end=last.id, speed="max")
    assert [told(client, "again", body).refused_by for body in BODIES] == [None, None, None, "replay"]


def test_what_was_given_up_is_told_as_the_dead_letter_that_it_is_with_when_and_why(
    hoot: Engine, client: Client
) -> None:
    def rejects(message: Message) -> object:
        return Reject("no such order") if message.body in (b"1", b"2") else None

    subscriber = hoot.subscriber("billing")
    subscriber.subscribe("orders", start="earliest", listener=rejects)
    subscriber.start()
    hoot.advance(5)
    assert told(client, "billing", b"0").dead_letters == ()
    found = told(client, "billing", b"1")
    [letter] = found.dead_letters
    assert (letter.stored.queue, letter.stored.body) == ("orders.billing.dlq", b"1")
    assert (letter.told("reason"), letter.told("last-error")) == ("rejected", "Reject: no such order")
    assert found.acknowledged
    assert hoot.now.timestamp() * 1000 - letter.id.timestamp_ms <= 5100
    client.dead_letters("orders", "billing").drop([letter])
    assert told(client, "billing", b"1").dead_letters == (), "nobody has it any more"
    assert told(client, "billing", b"2").dead_letters != ()


def test_a_dead_letter_is_told_of_when_its_message_is_stored_no_more(
    hoot: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber = hoot.subscriber("billing")
    subscriber.subscribe("orders", start="earliest", listener=lambda _: Reject(), topics=None)
    subscriber.start()
    hoot.advance(5)
    [message, *_] = client.queue("orders").scanner()
    monkeypatch.setattr(Explaining, "_read", lambda *_: None)
    [found] = client.explain("orders", "billing", message.id)
    assert found.message == message
    assert [letter.told("id") for letter in found.dead_letters] == [str(message.id)]
    with pytest.raises(InvalidRequest, match="no message"):
        client.explain("orders", "billing", message.id + 7)
