"""Subscriptions that are behind: one that catches up, and one that nothing is known to hold up, by a planted fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from delivery import Client, connect
from delivery.config import HostConfig
from delivery.dispatch import pulse
from delivery.dispatch.scanner import MessageScanner
from subscriber import Flow, Message, Subscriber
from tests.integration.cli.calling import call
from tests.integration.cli.running import environment
from tests.integration.embedded import NEVER, eventually
from tests.integration.hosts import RunningHost
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration

PUBLISHED_SECONDS = 6.0
BEHIND = 300
"""Messages that are published in that time."""


@pytest.fixture
def config(zookeeper_hosts: str, tmp_path: Path) -> HostConfig:
    return HostConfig(zookeeper=zookeeper_hosts, data=tmp_path / "data", grace_seconds=1.0)


@pytest.fixture
def client(config: HostConfig) -> Iterator[Client]:
    """With a host that runs in this process, so that faults can be planted in it."""
    with RunningHost(config), connect(config.zookeeper) as connected:
        yield connected


def test_a_subscriber_that_is_behind_and_quicker_than_what_was_published_catches_up(
    client: Client, config: HostConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "MARK_SECONDS", 1.0)  # after which a trend is told
    queue = client.create_queue("orders")
    client.create_subscription("orders", "billing", start="earliest")
    for _ in range(BEHIND):
        queue.put(b"x")
        NEVER.wait(PUBLISHED_SECONDS / BEHIND)
    heard: list[Message] = []

    def on_order(message: Message) -> None:
        NEVER.wait(PUBLISHED_SECONDS / BEHIND / 2)
        heard.append(message)

    subscriber = Subscriber("billing", zookeeper=config.zookeeper)
    subscriber.subscribe("orders", flow=Flow(window_messages=50), listener=on_order)
    with subscriber:
        found = judged(client, "orders", "billing", "catching_up")
        assert found.observation.trend is not None
        assert found.observation.trend < 0
        assert "which shrinks: wait" in found.verdict.text
        assert found.verdict.level == "fine"
        judged(client, "orders", "billing", "idle")
    assert len(heard) == BEHIND


def test_what_nothing_is_known_to_hold_up_is_stalled_and_goes_on_elsewhere(
    client: Client, config: HostConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scanner is never woken: a defect of Hoot itself, whatever it is, is to be told of."""
    queue = client.create_queue("orders")
    arrived = threading.Event()
    with ExitStack() as running:
        with monkeypatch.context() as planted:
            planted.setattr(MessageScanner, "_follow", lambda *_: None)
            subscriber = Subscriber("billing", zookeeper=config.zookeeper)
            subscriber.subscribe("orders", start="earliest", listener=lambda _: arrived.set())
            queue.put(b"read when it begins", timeout=30)
            running.enter_context(subscriber)
            eventually(arrived.is_set, "it is served")
            stored = queue.put(b"never told of")
            found = judged(client, "orders", "billing", "stalled")
            assert found.verdict.level == "critical"
            assert "hoot partition move" in found.verdict.text
            assert found.position < stored.id
            line = "HOOT CRITICAL - orders/billing partition 0: stalled: messages wait, nothing moves"
            eventually(lambda: checked(config).startswith(line), "monitors hear of it, too")
        arrived.clear()
        other = running.enter_context(RunningHost(config))
        client.placement.move("orders", 0, other.record)
        eventually(arrived.is_set, "the new owner delivers it")
        judged(client, "orders", "billing", "idle")


def checked(config: HostConfig) -> str:
    """The line of `hoot check`."""
    done = call(["check", "billing", "--queue", "orders", "--stuck-after", "1s"], b"", environment(config.zookeeper))
    return done.stdout
