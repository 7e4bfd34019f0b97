"""Why a message was not delivered, beyond what topics and filters say: parked, left out, or behind a replay's end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delivery.cli import filtering
from delivery.client import Client, NewMessage, burials
from delivery.client.burials import CLOCKS_MS, Search
from delivery.client.calls import Calls
from delivery.client.explaining import Explained, Explaining
from delivery.errors import InvalidRequest
from delivery.ids import MessageId
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


class Asked(Calls):
    """The calls of a client, with what it read of dead letters."""

    def __init__(self, client: Client) -> None:
        self._real = client._calls
        self.reads: list[Any] = []

    def call(self, queue: str, partition: int, method: str, *arguments: Any, **options: Any) -> Any:
        reply = self._real.call(queue, partition, method, *arguments, **options)
        if method == "read" and queue.endswith(".dlq"):
            self.reads.append((arguments[0], reply))
        return reply


def given_up(hoot: Engine, client: Client, count: int) -> list[MessageId]:
    """So many messages that are dead letters by now."""
    subscriber = hoot.subscriber("audit")
    subscriber.subscribe("orders", start="latest", listener=lambda _: Reject())
    subscriber.start()
    hoot.settle()
    stored = client.queue("orders").put_many([NewMessage(bytes(300), headers={"n": b"%d" % n}) for n in range(count)])
    hoot.advance(10)
    assert len(client.dead_letters("orders", "audit").letters()) == count
    return [one.id for one in stored]


def test_of_many_dead_letters_only_those_of_the_message_travel(hoot: Engine, client: Client) -> None:
    ids = given_up(hoot, client, 500)
    letters = client.dead_letters("orders", "audit")
    letters.drop([one for one in letters.letters() if one.told("id") == str(ids[1])])
    asked = Asked(client)
    search = Search(client._catalog, asked)
    found = search.find("orders", "audit", ids[400])
    assert [one.told("id") for one in found.letters] == [str(ids[400])]
    assert found.until is None
    assert search.find("orders", "audit", ids[1]) == ((), None), "it was dropped"
    assert max(len(reply.batches) for _, reply in asked.reads) < 3000


def test_a_search_begins_at_the_message_and_not_at_the_first_dead_letter(hoot: Engine, client: Client) -> None:
    given_up(hoot, client, 3)
    hoot.advance(2 * CLOCKS_MS / 1000)
    stored = client.queue("orders").put(b"later")
    hoot.advance(10)
    asked = Asked(client)
    assert len(Search(client._catalog, asked).find("orders", "audit", stored.id).letters) == 1
    first, *_ = client.dead_letters("orders", "audit").letters()
    assert asked.reads[0][0].after > first.id


def test_a_search_that_takes_too_long_ends_and_says_how_far_it_came(
    hoot: Engine, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = given_up(hoot, client, 60)
    monkeypatch.setattr(burials, "READ_BYTES", 1)
    [found] = client.explain("orders", "audit", ids[50])
    assert (len(found.dead_letters), found.letters_until) == (1, None)
    monkeypatch.setattr(burials, "SEARCH_SECONDS", 0.0)
    [found] = client.explain("orders", "audit", ids[50])
    assert found.dead_letters == ()
    letters = client.dead_letters("orders", "audit").letters()
    assert found.letters_until is not None
    assert letters[0].id <= found.letters_until < letters[-1].id
    filtering._print(found)
    assert f"of what was given up behind {found.letters_until}" in capsys.readouterr().out
    with pytest.raises(InvalidRequest, match=f"only those up to {found.letters_until} were looked through"):
        client.explain("orders", "audit", ids[-1] + 7)


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
