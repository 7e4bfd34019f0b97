"""Queue objects of a client that several threads use, when one of them deletes a queue and makes it anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delivery.client import Client, Queue
from delivery.client.admin import Admin
from delivery.testing import Engine


@pytest.fixture
def client() -> Iterator[Client]:
    with Engine() as engine:
        client = engine.connect()
        client.create_queue("orders")
        yield client


def behind(monkeypatch: pytest.MonkeyPatch, call: str, other_thread: Callable[[], object]) -> None:
    """Has another thread do something once, when that call has been answered and nothing been made of the answer."""
    ask, left = getattr(Admin, call), [other_thread]

    def late(*args: Any) -> object:
        answer = ask(*args)
        if left:
            left.pop()()
        return answer

    monkeypatch.setattr(Admin, call, late)


def test_who_has_looked_before_that_gets_the_new_queue_and_leaves_it_to_who_made_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    new: list[Queue] = []

    def make_anew() -> None:
        client.delete_queue("orders")
        new.append(client.create_queue("orders"))

    old = client.queue("orders")
    behind(monkeypatch, "queue_record", make_anew)
    client.update_queue("orders", ttl_seconds=60.0)  # so that what is read next is no longer what is known
    assert client.queue("orders") is new[0]
    assert old is not new[0]
    new[0].put(b"x")


def test_who_has_deleted_it_leaves_the_new_queue_to_who_made_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    new: list[Queue] = []
    behind(monkeypatch, "delete_queue", lambda: new.append(client.create_queue("orders")))
    client.delete_queue("orders")
    assert client.queue("orders") is new[0]
    new[0].put(b"x")


def test_who_has_the_queue_goes_on_with_it_when_its_settings_are_changed(client: Client) -> None:
    before = client.queue("orders")
    client.update_queue("orders", ttl_seconds=60.0)
    now = client.queue("orders")
    assert now is not before
    assert client.queue("orders") is now
    before.put(b"x")
