"""An order service: it charges the customer of each order, and publishes a receipt for what was paid.

    hoot serve                            # in one terminal
    python -m examples.orders.shop        # in another

A gateway that is down is asked again, later; orders of other customers go on meanwhile. A card that is refused, or an
order that nobody can read, becomes a dead letter: `hoot dlq list orders billing`.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Protocol

from delivery import Client, Publisher, connect
from subscriber import Message, Reject, Retry, RetryPolicy, Subscriber

POLICY = RetryPolicy(order="key", first_seconds=10, deliveries_max=5)
"""The orders of a customer wait for one another; who fails five times needs a person."""
GATEWAY_PAUSE_SECONDS = 30.0

log = logging.getLogger(__name__)


class GatewayDown(Exception):
    """The gateway does not answer."""


class CardRefused(Exception):
    """The customer's bank says no."""


class Gateway(Protocol):
    """Where money comes from."""

    def charge(self, customer: str, cents: int, order: str) -> None:
        """Raises GatewayDown, CardRefused. Charging the same order twice charges once."""


class Billing:
    """Handles orders. They may come twice, so the gateway is told their id."""

    def __init__(self, gateway: Gateway, receipts: Publisher) -> None:
        self._gateway, self._receipts = gateway, receipts

    def on_order(self, message: Message) -> Retry | Reject | None:
        """Charge for an order, then publish the receipt."""
        try:
            order = json.loads(message.body)
            customer, cents = str(order["customer"]), int(order["cents"])
        except (ValueError, KeyError, TypeError) as error:
            return Reject(f"this is no order: {error}")
        try:
            self._gateway.charge(customer, cents, str(message.id))
        except GatewayDown:
            return Retry(after=GATEWAY_PAUSE_SECONDS)
        except CardRefused as error:
            return Reject(f"the card was refused: {error}")
        self._receipts.put(b"%s paid %d" % (customer.encode(), cents), key=message.key)
        return None


def place(client: Client, customer: str, cents: int) -> None:
    """Place an order."""
    body = json.dumps({"customer": customer, "cents": cents}).encode()
    client.queue("orders").put(body, key=customer.encode(), topic="new")


def serve(client: Client, subscriber: Subscriber, gateway: Gateway) -> None:
    """Work until the subscriber is stopped."""
    with client.queue("receipts").publisher() as receipts:
        orders = subscriber.subscribe("orders", topics=["new"], start="earliest", retry=POLICY)
        orders.listener(Billing(gateway, receipts).on_order)
        subscriber.run()


class PaperGateway:
    """Writes down who owes what."""

    def charge(self, customer: str, cents: int, order: str) -> None:
        """See Gateway."""
        log.info("%s owes %d cents for order %s", customer, cents, order)


def main() -> None:
    """The program."""
    logging.basicConfig(level=logging.INFO)
    zookeeper = os.environ.get("HOOT_ZOOKEEPER", "127.0.0.1:2181")
    with connect(zookeeper) as client:
        for queue in {"orders", "receipts"} - set(client.queues()):
            client.create_queue(queue, partitions=4)
        place(client, "ada", 1250)
        serve(client, Subscriber("billing", zookeeper), PaperGateway())


if __name__ == "__main__":
    main()
