"""Scanners with isolation="committed", against a host: where they stop, and that they go on."""

from __future__ import annotations

import pytest

from delivery import Client, NewMessage
from delivery.client.scanners import Scanner
from delivery.errors import InvalidRequest
from delivery.messaging.marks import header
from delivery.rpc.blocking import BlockingConnection
from tests.integration.rest.conftest import Service, address_of

pytestmark = pytest.mark.integration


def test_a_scanner_of_what_is_committed_stops_at_what_is_in_progress_and_goes_on_after_its_end(
    client: Client, service: Service, namespace: str
) -> None:
    queue = client.create_queue(f"{namespace}.scanned")
    (writer, _), (undone, _) = service.begin(), service.begin()
    queue.put_many([b"plain", NewMessage(b"undone", headers=header(undone))])
    queue.put_many([b"before", NewMessage(b"one", headers=header(writer)), b"behind"])
    with (
        queue.scanner(start="earliest", isolation="committed") as scanner,
        queue.partition_scanner(0, start="earliest", isolation="committed", follow=True) as following,
    ):
        assert bodies(scanner) == [b"plain"]
        with BlockingConnection(*address_of(client)) as owner:
            owner.call("rollBack", queue.name, 0, undone)
        service.call("POST", f"/{undone}/abort")
        assert bodies(scanner) == [b"before"]
        assert [following.next(60).body, following.next(60).body] == [b"plain", b"before"]  # type: ignore[union-attr]
        assert following.next(0.1) is None
        service.call("POST", f"/{writer}/commit")
        assert bodies(scanner) == [b"one", b"behind"]
        assert [following.next(60).body, following.next(60).body] == [b"one", b"behind"]  # type: ignore[union-attr]
    with queue.scanner(start="earliest") as scanner:
        assert bodies(scanner) == [b"plain", b"undone", b"before", b"one", b"behind"]
    with queue.scanner(start="earliest", isolation="committed", filter="body = 'behind'") as scanner:
        assert bodies(scanner) == [b"behind"]
    with pytest.raises(InvalidRequest):
        queue.scanner(isolation="serializable")


def bodies(scanner: Scanner) -> list[bytes]:
    return [message.body for message in scanner.next_batch(100)]
