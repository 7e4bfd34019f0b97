"""How a program's transaction ends: who is asked in which order, and what is left when nobody answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest
import trio

from delivery.client.aio_transactions import AsyncTransaction
from delivery.client.transactions import Transaction
from delivery.errors import Closed, DeadlineExceeded, HootError, HostUnreachable, UnknownOutcome
from delivery.messaging.transactions import Snapshot
from delivery.transactions.asks import Begun
from delivery.transactions.errors import TransactionConflict, TransactionInvalid, UnknownTransaction

POINTER = 1_700_000_000_000_000_000


class Scene:
    """All that a transaction talks to, in one list of what was asked; `fails` names what does not come through."""

    partitions = 1

    def __init__(self, **fails: Exception) -> None:
        self.asked: list[str] = []
        self._fails = fails

    def note(self, what: str) -> None:
        self.asked.append(what)
        if what in self._fails:
            raise self._fails[what]

    def transaction(self, timeout: float = 60) -> Transaction:
        snapshot = Snapshot(transaction=POINTER, read_pointer=POINTER - 1, write_pointer=POINTER)
        scene = cast("Any", self)
        return Transaction(Begun(POINTER, 0, snapshot), scene, scene, lambda _: scene, timeout)

    # -- the manager

    def commit(self, pointer: int, changes: list[bytes]) -> None:
        self.note("commit")

    def abort(self, pointer: int) -> None:
        self.note("abort")

    def invalidate(self, pointer: int) -> None:
        self.note("invalidate")

    # -- queues and their partitions

    def put_of_transaction(self, pointer: int, messages: list[Any], *, timeout: float) -> None:
        assert pointer == POINTER
        assert all(one.headers["hoot.tx"] == POINTER.to_bytes(8) for one in messages)
        self.note("publish")

    def call(self, queue: str, partition: int, method: str, *args: object, timeout: float) -> None:
        assert (method, args) == ("rollBack", (queue, partition, POINTER))
        self.note("rollBack")


class Store:
    """A participant."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene, self._name = scene, name

    def changes(self) -> Iterable[bytes]:
        return [self._name.encode()]

    def prepare(self, transaction: Transaction) -> None:
        self._scene.note(f"prepare {self._name}")

    def commit(self, transaction: Transaction) -> None:
        self._scene.note(f"commit {self._name}")

    def rollback(self, transaction: Transaction) -> None:
        self._scene.note(f"rollback {self._name}")


def ended(scene: Scene, timeout: float = 60) -> Transaction:
    """One with two participants and a message, after its end."""
    tx = scene.transaction(timeout)
    for name in ("a", "b"):
        tx.join(Store(scene, name))
    tx.publish("q", b"body")
    try:
        tx.commit()
    finally:
        with pytest.raises(Closed):
            tx.rollback()
    return tx


PREPARED = ["prepare a", "prepare b", "publish"]
UNDONE = ["rollBack", "rollback b", "rollback a"]


def test_hoot_publishes_last_and_is_undone_first() -> None:
    scene = Scene()
    assert ended(scene).state == "committed"
    assert scene.asked == [*PREPARED, "commit", "commit a", "commit b"]
    scene = Scene(commit=TransactionConflict("both changed it"))
    with pytest.raises(TransactionConflict):
        ended(scene)
    assert scene.asked == [*PREPARED, "commit", *UNDONE, "abort"]


@pytest.mark.parametrize("at", ["prepare b", "publish"])
def test_what_fails_before_the_commit_undoes_what_may_have_been_done(at: str) -> None:
    scene = Scene(**{at: UnknownOutcome("nobody answered")})
    with pytest.raises(UnknownOutcome):
        ended(scene)
    done = PREPARED[: PREPARED.index(at) + 1]
    assert scene.asked == [*done, *(UNDONE if at == "publish" else UNDONE[1:]), "abort"]


@pytest.mark.parametrize("at", UNDONE)
def test_what_cannot_be_undone_becomes_invalid_and_everything_else_is_undone(at: str) -> None:
    scene = Scene(commit=TransactionInvalid("too late"), **{at: HostUnreachable("gone")})
    with pytest.raises(TransactionInvalid):
        ended(scene)
    assert scene.asked == [*PREPARED, "commit", *UNDONE, "invalidate"]


@pytest.mark.parametrize("error", [DeadlineExceeded("no answer"), UnknownTransaction("it ended long ago")])
def test_nothing_is_undone_of_what_may_be_committed(error: HootError) -> None:
    scene = Scene(commit=error)
    tx = scene.transaction()
    with pytest.raises(UnknownOutcome), tx:
        tx.join(Store(scene, "a"))
    assert (tx.state, scene.asked) == ("unknown", ["prepare a", "commit"])


def test_all_participants_hear_of_the_commit_though_one_fails() -> None:
    scene = Scene(**{"commit a": ValueError("a")})
    with pytest.raises(ValueError, match="a"):
        ended(scene)
    assert scene.asked == [*PREPARED, "commit", "commit a", "commit b"]


def test_nothing_is_published_when_the_time_is_over() -> None:
    scene = Scene()
    with pytest.raises(TransactionInvalid):
        ended(scene, timeout=0)
    assert "publish" not in scene.asked
    assert scene.asked[-1] == "abort"


def test_an_exception_undoes_everything_and_is_not_hidden_by_what_else_fails() -> None:
    scene = Scene(abort=HostUnreachable("gone"))
    with pytest.raises(KeyError), scene.transaction() as tx:  # noqa: PT012 - what it is undone by
        tx.join(Store(scene, "a"))
        raise KeyError
    assert (tx.state, scene.asked) == ("aborted", ["rollback a", "abort"])


def test_a_trio_program_that_is_cancelled_undoes_everything_all_the_same() -> None:
    scene = Scene()

    async def story() -> None:
        with trio.move_on_after(60) as scope:
            async with AsyncTransaction(scene.transaction()) as tx:
                tx.join(Store(scene, "a"))
                await tx.publish("q", b"body")
                scope.cancel()
                await trio.sleep_forever()
        assert tx.state == "aborted"
        async with AsyncTransaction(scene.transaction()) as tx:
            await tx.publish("q", b"body", partition=0)
        assert (tx.state, tx.pointer) == ("committed", POINTER)

    trio.run(story)
    assert scene.asked == ["rollback a", "abort", "publish", "commit"]
