"""ZooKeeper pauses or is killed under a running engine: it waits, does not guess, and goes on by itself."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from delivery import connect
from delivery.errors import HootError
from delivery.local import LocalEngine
from tests.integration.embedded import NEVER, eventually, pid_of
from tests.integration.engine import (
    SESSION_SECONDS,
    RecordingSubscriber,
    by_partition,
    check_checkpoints,
    check_delivered,
    engine,
)
from tests.integration.verdicts import judged

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def delivers_across(fault: Callable[[LocalEngine], None], folder: Path) -> None:
    """Publish and deliver, let the fault happen, publish and deliver on; then all promises must have held."""
    with engine(folder) as running, connect(running.address) as client:
        queue = client.create_queue("orders", partitions=2)
        subscriber = RecordingSubscriber(running, "orders", folder)
        subscriber.start()
        try:
            stored = queue.put_many([b"before"] * 500)
            eventually(lambda: subscriber.distinct() == 500, "what came before")
            fault(running)
            stored += queue.put_many([b"after"] * 500, timeout=60)
            eventually(lambda: subscriber.distinct() == 1000, "what came after", 60)
            published = by_partition(stored)
            check_delivered(published, subscriber.ids())
            check_checkpoints(running.address, "orders", "recorder", published, subscriber.ids())
            judged(client, "orders", "recorder", "idle")
        finally:
            subscriber.kill()


def scraped(http_port: int | None) -> str:
    """The verdicts that a scraper gets."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=30) as answer:
        return "\n".join(line for line in answer.read().decode().splitlines() if "_verdict{" in line)


def test_zookeeper_paused_beyond_the_session_timeout_loses_nothing(tmp_path: Path) -> None:
    def pause(running: LocalEngine) -> None:
        with connect(running.address) as client:
            [http_port] = [host.http_port for host in client.hosts()]
        pid = pid_of(running.zookeeper)
        os.kill(pid, signal.SIGSTOP)
        try:
            NEVER.wait(2 * SESSION_SECONDS)
            eventually(lambda: "zookeeper_lost" in scraped(http_port), "the host says what it is that is away")
        finally:
            os.kill(pid, signal.SIGCONT)

    delivers_across(pause, tmp_path)


def test_zookeeper_killed_and_started_again_is_found_again_and_delivery_goes_on(tmp_path: Path) -> None:
    def restart(running: LocalEngine) -> None:
        running.zookeeper.kill()
        NEVER.wait(1.0)
        running.zookeeper.start()

    delivers_across(restart, tmp_path)


def test_without_zookeeper_nothing_new_is_promised_and_the_error_says_why(tmp_path: Path) -> None:
    with engine(tmp_path) as running:
        running.zookeeper.kill()
        with pytest.raises(HootError) as caught:
            connect(running.address)
        assert caught.value.code == "metadata_unavailable"
        assert "ZooKeeper" in caught.value.message
