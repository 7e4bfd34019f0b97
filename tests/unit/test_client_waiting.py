"""Who publishes waits for nobody but the hosts that have to do with it."""

from __future__ import annotations

import threading
import time

from delivery.client.accumulator import Limits
from delivery.client.direct import DirectPublisher
from delivery.client.publisher import Publisher, Receipt
from delivery.errors import HootError, Throttled
from delivery.metastore.managers.records import OwnerInfo
from tests.scripted_host import FixedCatalog, ScriptedHost, target

SECONDS = 20.0


def put(of: DirectPublisher, partition: int) -> None:
    of.publish([((b"x", None, "", b""), 33, partition)], SECONDS)


def test_a_thread_whose_host_is_silent_holds_up_no_other_that_awaits_its_message() -> None:
    """The first one leads for all: it has to hear of what the others put."""
    with ScriptedHost() as silent, ScriptedHost() as other:
        where = target(silent, other, partitions=2)
        where.owners._catalog = catalog = FixedCatalog(silent.record, other.record)
        catalog.owned = {number: OwnerInfo(one.record.host, 1, 2) for number, one in enumerate((silent, other))}
        under_test = DirectPublisher(where)
        put(under_test, 1)
        silent.held.clear()
        leader = threading.Thread(target=put, args=(under_test, 0))
        leader.start()
        assert silent.received.wait(SECONDS)
        begun = time.monotonic()
        for _ in range(20):
            put(under_test, 1)
        assert time.monotonic() - begun < 5, "each waited for the leader to look again, which is every half second"
        silent.held.set()
        leader.join(SECONDS)
        under_test.close()


def test_a_callback_that_publishes_into_a_full_buffer_hears_so_on_any_thread_that_settles() -> None:
    """It may be called by a thread that puts: nobody sends while it waits, so that there would never be room."""
    limits = Limits(linger=0.0, batch_bytes=1000, batch_messages=1, buffer_bytes=4000)
    outcomes: list[object] = []
    with ScriptedHost() as host, Publisher(target(host), limits, in_flight=1, timeout=SECONDS) as under_test:
        body, busy = bytes(900), threading.Event()

        def again(_: Receipt) -> None:
            while not busy.is_set() and under_test._accumulator.fits(len(body)):
                under_test.put(body)
            try:
                under_test.put(body)
            except HootError as error:
                outcomes.append(type(error))
            busy.set()

        begun = time.monotonic()
        with under_test._turn:  # as a `put` has it that closes a batch
            under_test.put(body).add_done_callback(again)
            while not busy.is_set() and time.monotonic() - begun < SECONDS:
                under_test._step()
        assert outcomes == [Throttled]
        assert time.monotonic() - begun < SECONDS / 2, "it waited with the turn"
        under_test.flush()
