"""Threads that put at once, without a lock: every message is stored once, and its receipt tells its own id."""

from __future__ import annotations

import pytest

from delivery.client.accumulator import Grant, Limits
from delivery.client.publisher import Publisher, Receipt
from tests.scripted_host import ScriptedHost, target
from tests.threads import interrupting

SECONDS = 20.0


def publisher(host: ScriptedHost, limits: Limits) -> Publisher:
    return Publisher(target(host), limits, timeout=SECONDS, in_flight=4)


def test_threads_that_put_at_once_get_the_ids_of_their_own_messages() -> None:
    threads, each = 6, 3000
    with ScriptedHost() as host, publisher(host, Limits(linger=0.001, batch_messages=500)) as under_test:
        found: dict[bytes, Receipt] = {}

        def story(name: int) -> None:
            for number in range(each):
                body = b"%d/%d" % (name, number)
                found[body] = under_test.put(body)

        interrupting(story, range(threads), SECONDS * 3)
        under_test.flush()
        assert len(host.bodies) == threads * each
        assert all(host.bodies[int(receipt.id) - 1] == body for body, receipt in found.items())


def test_a_put_that_is_interrupted_in_the_midst_does_not_hold_up_the_others() -> None:
    """A Ctrl-C may come when the grant was taken and is not yet where `finally` would give it back."""
    with ScriptedHost() as host, publisher(host, Limits(linger=60)) as under_test:
        first = under_test.put(b"a")
        under_test._accumulator.grants.pop()
        second = under_test.put(b"b")
        under_test.flush()
        assert (first.result().id, second.result().id, host.bodies) == (1, 2, [b"a", b"b"])


@pytest.mark.parametrize("before", [True, False], ids=["appended before", "appended after"])
def test_a_put_that_stands_still_for_long_is_neither_lost_nor_told_anothers_id(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the grant may wait for the interpreter for any time; the others go on without it."""
    monkeypatch.setattr("delivery.client.accumulator.GRANT_SECONDS", 0.01)
    with ScriptedHost() as host, publisher(host, Limits(linger=60)) as under_test:
        receipts = [under_test.put(b"a")]
        take = under_test._take_grant

        class Slow(list[bytes]):
            """Bodies to which another thread puts, too, while one is appended."""

            def append(self, body: bytes) -> None:
                first, under_test._take_grant = under_test._take_grant is not take, take
                if before or not first:
                    super().append(body)
                if first:
                    receipts.append(under_test.put(b"b"))
                if first and not before:
                    super().append(body)

        def slowly() -> Grant:
            grant = take()
            grant.bodies = Slow(grant.bodies)
            grant.batch.rows.bodies = grant.bodies
            return grant

        under_test._take_grant = slowly
        receipts += [under_test.put(b"c"), under_test.put(b"d")]
        under_test.flush()
        assert sorted(host.bodies) == [b"a", b"b", b"c", b"d"]
        assert [host.bodies[receipt.id - 1] for receipt in receipts] == [b"a", b"b", b"c", b"d"]
