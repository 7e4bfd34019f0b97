"""What must be refused, asked of a host and a subscriber whom no fault disturbs (I13): answers, logs, counts."""

from __future__ import annotations

import re
import urllib.request

import pytest

from tests.chaos import listening, role
from tests.chaos.children import Child
from tests.chaos.cluster import SUBSCRIPTIONS
from tests.chaos.intruding import TO_HOSTS, TO_SUBSCRIBERS, TOLD, Attack, attempt
from tests.chaos.ports import new_port
from tests.chaos.stage import LOOPBACK, QUEUE, Stage, scanned
from tests.integration.embedded import eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

CODES = {"corrupt_record": 1, "invalid_request": 1, "unknown_queue": 1, "unknown_partition": 1}


def test_every_attack_gets_the_answer_that_it_deserves_and_has_no_effect(stage: Stage) -> None:
    host, queue, name = stage.host(), stage.queue(), SUBSCRIPTIONS[0].name
    file, port = stage.folder / "listening", new_port()
    orders = role.arguments(listening.Orders(stage.zookeeper, QUEUE, name, str(file), port, LOOPBACK))
    subscriber = Child(name, stage.keeper, stage.folder / "subscriber.log", lambda _: orders)
    try:
        subscriber.start()
        number = queue.put(b"before").id
        eventually(lambda: stage.position(name) == number, "it has what there is")

        def outcomes(attacks: tuple[Attack, ...], child: Child, at: int) -> dict[str, str]:
            return {one.kind: attempt(one, at, lambda: child.told(TOLD)) for one in attacks}

        assert outcomes(TO_HOSTS, host.process, host.port) == {one.kind: one.due for one in TO_HOSTS}
        assert outcomes(TO_SUBSCRIBERS, subscriber, port) == {one.kind: one.due for one in TO_SUBSCRIBERS}
        assert [message.body for message in scanned(queue)] == [b"before"]
        assert file.read_text().count("call ") == 1
        assert stage.client().queues() == [QUEUE]
        assert stage.catalog.subscriptions(QUEUE) == [name]
    finally:
        subscriber.close()
    [record] = stage.catalog.hosts()
    with urllib.request.urlopen(f"http://{record.address}:{record.http_port}/metrics", timeout=10) as answer:
        said = answer.read().decode()
    counted = dict(re.findall(r'^hoot_refused_publishes_total\{code="(\w+)"\} (\S+)$', said, re.MULTILINE))
    assert {code: float(count) for code, count in counted.items()} == CODES
