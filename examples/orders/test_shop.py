"""The order service against the engine of the test kit: see docs/testing.md."""

from __future__ import annotations

from collections import Counter

import pytest

from delivery import Client
from delivery.testing import Engine
from examples.orders import shop

pytest_plugins = ["delivery.testing.plugin"]


class FakeGateway:
    """Charges, unless it is told to be down or to refuse somebody."""

    def __init__(self) -> None:
        self.down = False
        self.refused: set[str] = set()
        self.charged: Counter[str] = Counter()

    def charge(self, customer: str, cents: int, order: str) -> None:
        if self.down:
            raise shop.GatewayDown
        if customer in self.refused:
            raise shop.CardRefused("no cover")
        self.charged[customer] += cents


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def client(hoot: Engine, gateway: FakeGateway) -> Client:
    """The service runs, on queues of one partition."""
    client = hoot.connect()
    for name in ("orders", "receipts"):
        client.create_queue(name)
    receipts = client.queue("receipts").publisher()
    subscriber = hoot.subscriber("billing")
    subscriber.subscribe("orders", topics=["new"], retry=shop.POLICY, listener=shop.Billing(gateway, receipts).on_order)
    subscriber.start()
    return client


def receipts(client: Client) -> list[bytes]:
    return [message.body for message in client.queue("receipts").scanner()]


def test_an_order_is_charged_and_has_a_receipt(hoot: Engine, client: Client, gateway: FakeGateway) -> None:
    shop.place(client, "ada", 1250)
    hoot.settle()
    assert gateway.charged == {"ada": 1250}
    assert receipts(client) == [b"ada paid 1250"]
    hoot.assert_idle("orders", "billing")


def test_a_gateway_that_is_down_is_asked_again_after_a_while(
    hoot: Engine, client: Client, gateway: FakeGateway
) -> None:  # fmt: skip
    gateway.down = True
    shop.place(client, "ada", 1)
    shop.place(client, "ada", 2)
    hoot.settle()
    gateway.down = False
    hoot.advance(shop.GATEWAY_PAUSE_SECONDS - 1)
    assert gateway.charged == {}
    hoot.advance(1)
    assert receipts(client) == [b"ada paid 1", b"ada paid 2"]
    hoot.assert_retried("orders", "billing", b'{"customer": "ada", "cents": 1}', times=1)


def test_one_customer_does_not_wait_for_another(hoot: Engine, client: Client, gateway: FakeGateway) -> None:
    gateway.down = True
    shop.place(client, "ada", 1)
    hoot.settle()
    gateway.down = False
    shop.place(client, "bob", 2)
    hoot.settle()
    assert gateway.charged == {"bob": 2}
    assert [parked.key for parked in hoot.parked("orders", "billing")] == [b"ada"]


def test_a_card_that_is_refused_and_an_order_that_is_none_become_dead_letters(
    hoot: Engine, client: Client, gateway: FakeGateway
) -> None:  # fmt: skip
    gateway.refused = {"eve"}
    shop.place(client, "eve", 5)
    client.queue("orders").put(b"no json", topic="new")
    hoot.settle()
    eve, nonsense = hoot.dead_lettered("orders", "billing")
    assert "the card was refused: no cover" in eve.told("last-error")
    assert nonsense.stored.body == b"no json"
    assert gateway.charged == {}


def test_who_fails_five_times_is_given_up(hoot: Engine, client: Client, gateway: FakeGateway) -> None:
    gateway.down = True
    shop.place(client, "ada", 1)
    hoot.advance(5 * shop.GATEWAY_PAUSE_SECONDS)
    body = b'{"customer": "ada", "cents": 1}'
    hoot.assert_retried("orders", "billing", body, times=5)
    hoot.assert_dead_lettered("orders", "billing", [body], reason="failed 5 times")


def test_the_whole_program_runs(hoot: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes its client and its subscriber by itself."""
    monkeypatch.setattr(shop, "connect", hoot.connect)
    monkeypatch.setattr(shop, "Subscriber", hoot.subscriber)
    shop.main()
    hoot.assert_delivered("orders", "billing", [b'{"customer": "ada", "cents": 1250}'])
    assert receipts(hoot.connect()) == [b"ada paid 1250"]
