"""What ends a publisher's thread, or tries to, is told: nobody waits for a receipt for ever."""

from __future__ import annotations

import pytest

from delivery.client.accumulator import Limits
from delivery.client.publisher import Receipt
from delivery.errors import HootError
from tests.scripted_host import ScriptedHost
from tests.unit.test_client_publisher import SECONDS, publisher


def test_a_callback_that_ends_the_program_is_logged_and_costs_no_message_its_receipt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def leave(_receipt: Receipt) -> None:
        raise SystemExit(3)

    with ScriptedHost() as host, publisher(host) as writer:
        receipts = [writer.put(b"1"), writer.put(b"2")]
        receipts[0].add_done_callback(leave)
        stored = [one.result(SECONDS).id for one in (*receipts, writer.put(b"3"))]
    assert len(set(stored)) == 3
    assert "a callback of a receipt raised" in caplog.text


def test_whatever_ends_the_thread_of_a_publisher_is_told_to_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedHost() as host, publisher(host, limits=Limits(linger=60)) as writer:
        receipt = writer.put(b"1")

        def step() -> None:
            raise SystemExit(3)

        monkeypatch.setattr(writer, "_step", step)
        writer._sender.wake()
        with pytest.raises(HootError, match="SystemExit"):
            receipt.result(SECONDS)
