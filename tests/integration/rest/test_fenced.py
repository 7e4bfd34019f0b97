"""The owner of a topic stands still, and wakes up when another host has the topic: 503 until one of them can answer."""

from __future__ import annotations

import base64
import json
import os
import signal
from contextlib import closing

import pytest

from delivery.embedded import EmbeddedZooKeeper
from tests.integration.embedded import eventually
from tests.integration.rest.conftest import client_of, several_on
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

NOTHING_STORED = {"not_owner", "metadata_unavailable", "no_host"}


class Publishing:
    """Publishes until it is answered 200; `maybe` are the messages of which nobody knows."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.maybe: list[bytes] = []
        self.refused = 0
        self._count = 0

    def insist(self, client: Topics) -> None:
        eventually(lambda: self._once(client), "a publish is answered 200", 90)

    def _once(self, client: Topics) -> bool:
        self._count += 1
        body = b"%d" % self._count
        asked = json.dumps({"messages": [base64.b64encode(body).decode()]}).encode()
        answer = client.call("POST", "/t/publish", asked, content_type="application/json")
        if answer.status == 200:
            self.stored.append(body)
            return True
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        self.refused += 1
        if json.loads(answer.body)["code"] not in NOTHING_STORED:
            self.maybe.append(body)
        return False


def test_a_frozen_owner_is_taken_over_from_and_stores_nothing_when_it_wakes_up(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory, namespace: str
) -> None:
    publishing = Publishing()
    with several_on(zookeeper, tmp_path_factory.mktemp("frozen"), 2) as pair:
        with closing(client_of(pair, 0, namespace)) as first:
            assert first.create("t").status == 200
            publishing.insist(first)
        owner = pair.owner(f"{namespace}.t", 0)
        frozen = pair.processes[owner].pid
        with closing(client_of(pair, 1 - owner, namespace)) as other, closing(client_of(pair, owner, namespace)) as old:
            os.kill(frozen, signal.SIGSTOP)
            try:
                publishing.insist(other)
            finally:
                os.kill(frozen, signal.SIGCONT)
            assert publishing.refused, "it was asked while nobody could answer"
            publishing.insist(old)
            found = other.bodies("t")
            assert [body for body in found if body not in publishing.maybe] == publishing.stored
            assert old.bodies("t") == found
