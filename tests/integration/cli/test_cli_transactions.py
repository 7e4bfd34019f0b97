"""`hoot transaction`: what operators see of transactions, and how they end those that nobody ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from delivery import Client, NewMessage
from delivery.client import Transaction
from delivery.messaging.marks import header
from delivery.rpc.blocking import BlockingConnection
from tests.integration.cli.running import Hoot

pytestmark = pytest.mark.integration


@pytest.fixture
def begun(client: Client) -> Iterator[Transaction]:
    """A transaction whose program has gone."""
    found = client.transaction(timeout=600)
    yield found
    if client.transactions.standing(found.pointer) == "in_progress":
        client.transactions.abort(found.pointer)


def test_transactions_are_listed_and_shown(hoot: Hoot, begun: Transaction, client: Client) -> None:
    (found,) = [one for one in hoot.json("transaction", "list") if one["transaction"] == begun.pointer]
    assert found["state"] == "in_progress"
    assert datetime.fromisoformat(found["began"]) < datetime.fromisoformat(found["deadline"])
    assert hoot.json("transaction", "info", str(begun.pointer)) == found
    assert "in_progress" in hoot("transaction", "info", str(begun.pointer)).stdout
    assert str(begun.pointer) in hoot("transaction", "list").stdout
    assert begun.pointer not in [one["transaction"] for one in hoot.json("transaction", "list", "--invalid")]
    begun.commit()
    assert hoot.json("transaction", "info", str(begun.pointer)) == {**found, "state": "committed", "deadline": None}
    assert hoot.refused("transaction", "abort", str(begun.pointer), "--yes")["error"] == "transaction_finished"
    unknown = hoot.refused("transaction", "info", "17")
    assert unknown["error"] == "unknown_transaction"
    assert "hoot transaction list" in unknown["hint"]


def test_what_is_committed_is_scanned_and_subscribed_to_and_it_is_explained_what_a_message_waits_for(
    hoot: Hoot, begun: Transaction, client: Client, queue: str
) -> None:
    undone, back = (client.transactions.begin(600_000).pointer for _ in range(2))
    bodies = {"back": back, "undone": undone, "own": begun.pointer, "behind": 0}
    messages = [
        NewMessage(body.encode(), headers=header(by) if by else None, partition=0) for body, by in bodies.items()
    ]
    ids = dict(zip(bodies, [str(one.id) for one in client.queue(queue).put_many(messages)], strict=True))
    client.transactions.invalidate(undone)
    (host,) = client.hosts()
    with BlockingConnection(host.address, host.port) as owner:
        owner.call("rollBack", queue, 0, back)

    def read(command: str, *more: str) -> list[str]:
        return hoot(command, queue, "--format", "body", "--from", "earliest", *more).stdout.split()

    def why(name: str) -> tuple[bool, str | None, int | None]:
        [one] = hoot.json("subscription", "explain", queue, "mine", "--message", ids[name])["explanations"]
        return one["taken"], one["refused_by"], one["waits_for"]

    made = ("subscription", "create", queue, "mine", "--from", "earliest", "--isolation", "committed")
    assert hoot.json(*made)["isolation"] == "committed"
    assert (read("scan"), read("scan", "--isolation", "committed")) == (list(bodies), [])
    assert [why(name) for name in bodies] == [
        (False, "rolled_back", None), (False, "invalid", None),
        (False, None, begun.pointer), (False, None, begun.pointer),
    ]  # fmt: skip
    text = hoot("subscription", "explain", queue, "mine", "--message", ids["behind"]).stdout
    assert f"waits for transaction {begun.pointer}, which is in progress (one before it;" in text
    begun.commit()
    assert [why(name)[0] for name in bodies] == [False, False, True, True]
    taken = ["own", "behind"]
    assert read("scan", "--isolation", "committed") == read("subscribe", "--isolation", "committed", "-n", "2") == taken
    assert hoot.refused("scan", queue, "--isolation", "serializable", status=2)["error"] == "invalid_request"


def test_a_transaction_is_made_invalid_and_aborted_after_its_messages_were_rolled_back(
    hoot: Hoot, begun: Transaction
) -> None:
    pointer = str(begun.pointer)
    assert hoot.refused("transaction", "invalidate", pointer, status=2)["error"] == "bad_use", "nobody to ask"
    assert hoot.json("transaction", "invalidate", pointer, "--yes")["state"] == "invalid"
    assert hoot.json("transaction", "prune", "--dry-run") == {"pruned": 0}, "it may still have messages"
    assert begun.pointer in [one["transaction"] for one in hoot.json("transaction", "list", "--invalid")]
    assert hoot.json("transaction", "abort", pointer, "--yes")["state"] == "aborted"
    assert hoot.json("transaction", "prune") == {"pruned": 0}
    assert hoot.json("transaction", "prune", "--before", "-26h", "--yes") == {"pruned": 0}
    assert hoot.refused("transaction", "prune", "--before", "-1h", "--yes", status=2)["error"] == "invalid_request"
    assert hoot.refused("transaction", "prune", "--before", "latest", status=2)["error"] == "bad_use"
