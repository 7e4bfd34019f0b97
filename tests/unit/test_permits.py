"""What transactions publish over Thrift: asked for before it is stored, and nobody else waits for that."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import wait_all_tasks_blocked

from delivery.api.plain import PlainCalls
from delivery.api.publishing import Publishing
from delivery.api.thrift import ThriftApi
from delivery.api.transactions import TransactionCalls
from delivery.api.writers import Writers
from delivery.batch import encode
from delivery.errors import CorruptRecord, HootError, MetadataUnavailable, NoHost, ServiceStopping
from delivery.messaging.marks import header, pointers_in
from delivery.model import encode_headers
from delivery.publish.pending import PendingPublish, Stored
from delivery.publish.permits import Permit
from delivery.rpc.protocol import load_idl
from delivery.transactions.errors import TransactionFinished
from delivery.transactions.pointers import first_run
from delivery.wall import ms
from tests.hosting import Scene, batch, bodies_in, outcome, play
from tests.writers import STANDINGS, refusal, writers

OWN = first_run(0, ms())


def made(*pointers: int, producer: int = 0, sequence: int = 0) -> bytes:
    """A batch with a message of each transaction, 0 for one of none."""
    rows = [(b"b%d" % one, None, "", encode_headers({"a": b"b", **(header(one) if one else {})})) for one in pointers]
    return encode(rows, 0, producer, sequence)


def published_to(scene: Scene, known: Writers) -> Publishing:
    return Publishing(scene.publisher, known, cast("Any", scene.cluster), partial(marked, scene))


def is_marked(scene: Scene) -> bool:
    return scene.cluster.records["orders"].takes_transactions


def marked(scene: Scene, queue: str) -> None:
    scene.cluster.records[queue] = msgspec.structs.replace(scene.cluster.records[queue], transactional=True)


async def publish(scene: Scene, known: Writers, data: bytes) -> Any:
    nobody: Any = None
    publishing = published_to(scene, known)
    api = ThriftApi(publishing, nobody, nobody, nobody, nobody, nobody, subscribing=nobody, deliveries=nobody)
    args = SimpleNamespace(queue="orders", partition=0, batch=data, generation=None)
    return await cast("Any", api.begin(cast("Any", SimpleNamespace(method="publish", args=args)))).wait()


async def put(scene: Scene, known: Writers, pointer: int) -> Any:
    unused: Any = None
    plain = PlainCalls(published_to(scene, known), cast("Any", scene.cluster), unused, unused)
    return await plain.put("orders", 0, [load_idl("delivery").Message(body=b"plain", headers=header(pointer))])


async def roll_back(scene: Scene, known: Writers, pointer: int) -> None:
    calls = TransactionCalls(cast("Any", None), scene.publisher, known.check_undo)
    await calls.call("rollBack", "orders", 0, pointer)


@pytest.mark.parametrize(("standing", "refused", "undoing"), STANDINGS)
def test_over_thrift_too_only_a_transaction_in_progress_writes(
    standing: str | None, refused: type[HootError] | None, undoing: type[HootError] | None
) -> None:
    async def story(scene: Scene) -> None:
        known = writers({OWN: standing, OWN + 1: "in_progress"}.get)
        await publish(scene, known, made(0, OWN + 1))
        for call in (publish(scene, known, made(0, OWN + 1, OWN)), put(scene, known, OWN)):
            assert await refusal(call) is refused
        assert await refusal(roll_back(scene, known, OWN)) is undoing
        assert len(scene.store.groups) == 1 + 2 * (refused is None) + (undoing is None)

    play(story)


@pytest.mark.parametrize("by", ["a batch", "one message"])
def test_a_queue_is_known_to_hold_messages_of_transactions_before_the_first_is_stored(by: str) -> None:
    async def story(scene: Scene) -> None:
        def standing(_: int) -> str:
            assert is_marked(scene)
            return "in_progress"

        known = writers(standing)
        await publish(scene, known, made(0))
        assert not is_marked(scene)
        await (publish(scene, known, made(0, OWN)) if by == "a batch" else put(scene, known, OWN))
        assert is_marked(scene)
        assert len(scene.store.groups) == 2

    play(story)


def test_who_has_no_transaction_waits_for_nobody_and_a_producer_s_batches_stay_in_order() -> None:
    async def story(scene: Scene) -> None:
        gate = trio.Event()
        begun = [begin(scene, made(0, producer=7, sequence=1))]
        begun.append(begin(scene, made(1, producer=7, sequence=2), gate.wait))
        begun += [begin(scene, made(0, producer=7, sequence=3)), begin(scene, made(0, producer=8, sequence=1))]
        begun.append(scene.publisher.begin("orders", 0, batch(b"none")))
        await wait_all_tasks_blocked()
        for pending in (begun[0], begun[3], begun[4]):
            await pending.wait()
        assert [pending.outcome is None for pending in begun] == [False, True, True, False, False]
        gate.set()
        ids = [(await pending.wait()).base_id for pending in begun[:3]]
        assert ids == sorted(ids)
        assert scene.publisher.pending_bytes == 0

    play(story)


def test_what_is_refused_takes_no_number_and_who_cannot_be_asked_refuses_nothing_for_good() -> None:
    async def story(scene: Scene) -> None:
        ended = begin(scene, made(1, producer=7, sequence=1), raising(TransactionFinished("over")))
        silent = begin(scene, made(2, producer=7, sequence=1), raising(NoHost("nobody")))
        behind = begin(scene, made(0, producer=7, sequence=1))
        assert isinstance(await outcome(ended), TransactionFinished)
        assert isinstance(await outcome(silent), MetadataUnavailable)
        assert isinstance(await outcome(behind), Stored)
        assert await bodies_in(scene) == [b"b0"]
        assert isinstance(await outcome(begin(scene, bytes(100), trio.sleep_forever)), CorruptRecord)

    play(story)


def test_a_stopping_host_refuses_what_still_waits() -> None:
    begun: list[PendingPublish] = []

    async def story(scene: Scene) -> None:
        begun.append(begin(scene, made(1, producer=7, sequence=1), trio.sleep_forever))
        begun.append(begin(scene, made(0, producer=7, sequence=2)))
        await wait_all_tasks_blocked()

    play(story)
    assert all(isinstance(pending.outcome, ServiceStopping) for pending in begun)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.binary(max_size=40))
def test_the_transactions_of_a_batch_are_found_in_its_headers_alone(pointers: Sequence[int], body: bytes) -> None:
    block = encode_headers(header(OWN))
    rows = [(body + block, None, "", encode_headers(header(OWN + one)) if one else b"") for one in pointers]
    assert pointers_in(encode(rows, 0)) == {OWN + one for one in pointers if one}


def begin(scene: Scene, data: bytes, permit: Permit | None = None) -> PendingPublish:
    return scene.publisher.begin("orders", 0, data, permit=permit)


def raising(error: HootError) -> Permit:
    async def permit() -> None:
        raise error

    return permit
