"""Subscriptions with isolation="committed" on a real engine: what waits says so, and goes on by itself."""

from __future__ import annotations

import secrets

import pytest

from delivery import Client, NewMessage
from delivery.errors import InvalidRequest
from delivery.messaging.marks import header
from subscriber import Message, Reject, Subscriber
from tests.integration.embedded import eventually
from tests.integration.engine import Engine
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration


@pytest.fixture
def queue(client: Client) -> str:
    return client.create_queue(f"committed-{secrets.token_hex(4)}").name


def test_pushes_wait_for_the_end_of_a_transaction_and_the_verdict_names_it(
    running: Engine, client: Client, queue: str
) -> None:
    seen: dict[str, list[bytes]] = {"mail": [], "keys": [], "all": []}
    subscribers = [Subscriber(name, running.address, member="m" if name == "keys" else None) for name in seen]

    def declare(subscriber: Subscriber) -> None:
        def note(message: Message) -> None:
            seen[subscriber.name].append(message.body)

        subscriber.subscribe(
            queue, start="earliest", isolation="uncommitted" if subscriber.name == "all" else "committed",
            kind="key_shared" if subscriber.name == "keys" else None,
        ).listener(note)  # fmt: skip

    def await_both(*bodies: bytes) -> None:
        eventually(lambda: seen["mail"] == seen["keys"] == list(bodies), f"{bodies} of {seen}")

    for subscriber in subscribers:
        declare(subscriber)
    with subscribers[0], subscribers[1], subscribers[2]:
        manager = client.transactions
        committed, undone = manager.begin(60_000).pointer, manager.begin(60_000).pointer
        one, never = (NewMessage(body, headers=header(by)) for body, by in [(b"one", committed), (b"no", undone)])
        client.queue(queue).put_many([b"before", one, b"plain", never, b"last"])
        for name in ("mail", "keys"):
            eventually(
                lambda: judged(client, queue, name, "waiting_for_transaction").lag == 4,  # noqa: B023 - called at once
                "the first is acknowledged",
            )
            found = judged(client, queue, name, "waiting_for_transaction")
            assert f"transaction {committed}" in found.verdict.text
            assert found.verdict.since_ms > 0
        await_both(b"before")
        manager.commit(committed, [])
        await_both(b"before", b"one", b"plain")
        assert f"transaction {undone}" in judged(client, queue, "mail", "waiting_for_transaction").verdict.text
        manager.invalidate(undone)
        await_both(b"before", b"one", b"plain", b"last")
        assert seen["all"] == [b"before", b"one", b"plain", b"no", b"last"]
        assert client.subscription_info(queue, "mail").isolation == "committed"


def test_a_dead_letter_is_redriven_when_its_transaction_is_committed(
    running: Engine, client: Client, queue: str
) -> None:
    subscriber = Subscriber("all", running.address)
    subscriber.subscribe(queue, start="earliest").listener(lambda _: Reject("no"))
    manager = client.transactions
    committed, undone = manager.begin(600_000).pointer, manager.begin(600_000).pointer
    with subscriber:
        letters = client.dead_letters(queue, "all")
        for body, pointer in ((b"one", committed), (b"never", undone)):
            client.queue(queue).put(body, headers={"a": b"b", **header(pointer)})
        eventually(lambda: len(letters.letters()) == 2, "both are given up")
    one, never = letters.letters()
    manager.invalidate(undone)
    for letter in (one, never):
        with pytest.raises(InvalidRequest, match="not committed"):
            letters.redrive([letter])
    manager.commit(committed, [])
    letters.redrive([one])
    with client.queue(queue).scanner(isolation="committed") as scanner:
        found = scanner.next_batch(9)
    assert [(message.body, dict(message.headers)) for message in found] == [
        (b"one", {"a": b"b", **header(committed)}), (b"one", {"a": b"b"}),
    ]  # fmt: skip
    assert [letter.id for letter in letters.letters()] == [never.id]
