"""Hosts and subscribers that come and go in order: rows 7, 9, 38 and 39 of the fault table, with real processes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from delivery.errors import HootError
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber import Subscriber
from tests.chaos.ensemble import Ensemble
from tests.chaos.stage import QUEUE, SESSION_SECONDS, TAKEOVER_SECONDS, Publishing, Stage, scanned_ids
from tests.integration.embedded import NEVER, eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos]


def test_row_7_leaders_of_zookeeper_are_killed_and_all_its_servers_restarted_and_one_owner_serves_on(
    tmp_path: Path,
) -> None:
    with (
        Ensemble(tmp_path / "ensemble") as ensemble,
        ZooKeeperClient(ensemble.address, deadline=20.0) as session,
        Stage(tmp_path, ensemble.address, open_catalog(session)) as stage,
    ):
        host = stage.host()
        queue, listener = stage.queue(), stage.listen()
        with Publishing(queue) as publishing:
            publishing.more(20)
            for _ in range(2):
                [leader] = ensemble.by_role("leader")
                leader.end()
                ensemble.wait()
                publishing.more(20)
                ensemble.start(leader)
                ensemble.wait(everybody=True)
            for node in ensemble.nodes:
                node.end()
                ensemble.start(node)
                ensemble.wait(everybody=True)
            publishing.more(20, TAKEOVER_SECONDS)
        eventually(lambda: stage.owns(host), "the host owns the partition", TAKEOVER_SECONDS)
        ids = scanned_ids(queue)
        assert ids == publishing.stored
        listener.check(ids)


def test_row_38_while_others_subscribe_and_unsubscribe_all_the_time_a_stable_subscription_gets_everything_once(
    stage: Stage,
) -> None:
    stage.host()
    queue, listener = stage.queue(), stage.listen()
    with Publishing(queue) as publishing:
        for number in range(40):
            other = Subscriber(f"passing-{number % 3}", zookeeper=stage.zookeeper)
            other.subscribe(QUEUE, start="latest", listener=lambda _message: None)
            with other:
                NEVER.wait(0.02)
                other.unsubscribe(QUEUE)
    ids = scanned_ids(queue)
    assert ids == publishing.stored
    assert listener.check(ids) == 0
    assert stage.catalog.subscriptions(QUEUE) == ["listener"]


def test_row_39_hosts_that_join_and_drain_in_turn_lose_nothing_and_deliver_nothing_twice(stage: Stage) -> None:
    stage.host()
    queue, listener = stage.queue(), stage.listen()
    with Publishing(queue) as publishing:
        publishing.more(20)
        for _ in range(3):
            stage.host()
            leaving = next(host for host in stage.hosts if stage.owns(host))
            epoch = stage.owner().epoch
            assert leaving.process.stop(), "it ends by itself and says that all is well"
            publishing.more(20, SESSION_SECONDS + 1)
            assert stage.owner().epoch > epoch
    ids = scanned_ids(queue)
    assert ids == publishing.stored
    assert listener.check(ids) == 0


def test_row_9_what_came_and_went_while_a_host_was_away_is_known_to_it_afterwards(stage: Stage) -> None:
    host = stage.host()
    queue = stage.queue()
    host.process.signal(signal.SIGSTOP)
    client = stage.client()
    passing = client.create_queue("passing", partitions=1)
    client.delete_queue("passing")
    staying = client.create_queue("staying", partitions=1)
    host.process.signal(signal.SIGCONT)
    assert passing.name not in stage.client().queues()
    for one in (queue, staying):
        assert one.put(b"after").id > 0
    with pytest.raises(HootError):
        passing.put(b"after", timeout=1.0)


def test_row_9_who_attached_while_a_host_was_away_is_delivered_to_and_who_came_and_went_is_not(stage: Stage) -> None:
    host = stage.host()
    queue = stage.queue()
    queue.put(b"before")
    host.process.signal(signal.SIGSTOP)
    passing = Subscriber("passing", zookeeper=stage.zookeeper)
    passing.subscribe(QUEUE, start="earliest", listener=lambda _message: None)
    with passing:
        passing.unsubscribe(QUEUE)
    listener = stage.listen()
    host.process.signal(signal.SIGCONT)
    queue.put(b"after")
    listener.check(scanned_ids(queue))
    assert stage.catalog.subscriptions(QUEUE) == ["listener"]
