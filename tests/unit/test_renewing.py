"""A registration that was confirmed at the moment at which ZooKeeper went away."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from delivery.testing import Engine
from delivery.testing.receiving import LocalRuntime
from subscriber import Event
from subscriber.registration import Renewed, SubscriberZooKeeper


def test_who_was_told_that_zookeeper_is_away_is_not_told_of_a_confirmation_from_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtimes, away = list[Any](), False
    confirm, keep_registered = SubscriberZooKeeper.renew, LocalRuntime._keep_registered

    async def noted(runtime: LocalRuntime) -> None:
        runtimes.append(runtime)
        await keep_registered(runtime)

    def becomes(state: str) -> None:
        runtimes[0]._zookeeper.state = state
        runtimes[0]._post(partial(runtimes[0]._note_state, state))

    def renew(registration: SubscriberZooKeeper, *given: Any) -> Renewed:
        found = confirm(registration, *given)
        if away:
            becomes("suspended")
        return found

    monkeypatch.setattr(LocalRuntime, "_keep_registered", noted)
    monkeypatch.setattr(LocalRuntime, "_renew_seconds", 30.0)
    monkeypatch.setattr(SubscriberZooKeeper, "renew", renew)
    events, states = list[Event](), list[str]()
    with Engine() as hoot:
        hoot.connect().create_queue("orders")
        subscriber = hoot.subscriber("mail")
        subscriber.subscribe("orders", listener=lambda _: None)
        subscriber.on_event(events.append)
        subscriber.start()
        hoot.settle()
        away = True
        hoot.advance(60)
        states.append(subscriber.subscriptions["orders"].state)
        away = False
        becomes("steady")
        hoot.advance(60)
        states.append(subscriber.subscriptions["orders"].state)
    assert states == ["suspended", "attached"]
    assert [event.kind for event in events] == ["attached", "suspended", "attached"]
