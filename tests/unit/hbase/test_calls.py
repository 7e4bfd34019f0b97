"""What a call through a gateway ends with when the gateway, or HBase behind it, does not do it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace

import pytest
from happybase.batch import BatchMutation
from happybase.connection import Connection
from thriftpy2.thrift import TApplicationException, TException

from delivery.errors import HootError, InvalidRequest, StorageUnavailable, UnknownOutcome
from delivery.hbase import Admin, CellTooLarge, NoTable, Tables
from delivery.hbase.errors import Denied, Lost, Passing, TableExists, Unreached, refusal
from delivery.hbase.requests import REQUEST_BYTES
from delivery.hbase.tables import PUTS_AT_ONCE

Address = tuple[str, int]
SECONDS = 1.0


class _Said(TException):
    def __init__(self, message: bytes) -> None:
        self.message = message


class IllegalArgument(_Said):
    pass


class AlreadyExists(_Said):
    pass


@pytest.fixture
def deaf() -> Iterator[Address]:
    """A gateway that takes every request and closes the connection without an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(1 << 16)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def nobody() -> Address:
    """An address that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()  # type: ignore[no-any-return]


def test_a_gateway_that_cannot_be_reached_means_that_nothing_was_done(nobody: Address) -> None:
    with closing(Tables([nobody], call_seconds=SECONDS)) as tables:
        with pytest.raises(Unreached, match="cannot be reached"):
            tables.names()
        with pytest.raises(Unreached):
            tables.check_and_put("t", b"r", (b"f:", None), b"f:", b"")


def test_what_is_tried_again_is_told_at_once_and_once(
    nobody: Address, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits sees nothing else until the deadline."""
    slept: list[int] = []
    # Not time.sleep itself, which belongs to every thread of this process.
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda _: slept.append(len(caplog.records))))
    with closing(Tables([nobody], call_seconds=SECONDS)) as tables:
        for _ in range(2):
            with pytest.raises(Unreached):
                tables.names()
    assert set(slept) == {1}, "before it is tried a second time"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    said = f"HBase Thrift gateway {nobody[0]}:{nobody[1]} cannot be reached; what is asked of HBase is tried for up to"
    assert record.getMessage() == f"{said} {SECONDS:g} s"


def test_a_namespace_is_not_waited_for_twice(nobody: Address) -> None:
    with closing(Tables([nobody], call_seconds=SECONDS)) as tables, pytest.raises(Unreached):
        tables.lacks("ours")


def test_a_second_interface_that_cannot_be_reached_made_no_table(nobody: Address) -> None:
    with pytest.raises(Unreached):
        Admin([nobody, nobody], call_seconds=SECONDS).create("t", ["f"], [b"1"])


def test_after_a_lost_answer_a_compare_and_set_is_unknown_and_is_not_asked_again(deaf: Address) -> None:
    with closing(Tables([deaf], call_seconds=SECONDS)) as tables:
        with pytest.raises(UnknownOutcome):
            tables.check_and_put("t", b"r", (b"f:", None), b"f:", b"")
        with pytest.raises(Lost):
            tables.get("t", b"r", [b"f:"])


def test_connections_that_were_closed_serve_nobody(nobody: Address) -> None:
    tables = Tables([nobody])
    tables.close()
    tables.close()
    for call in (tables.names, lambda: tables.put("t", [(b"r", {b"f:": bytes(2 * REQUEST_BYTES)})] * 2)):
        with pytest.raises(StorageUnavailable, match="closed"):
            call()


def test_an_answer_that_is_no_thrift_is_a_lost_one(monkeypatch: pytest.MonkeyPatch, deaf: Address) -> None:
    def nonsense(*_: object) -> None:
        raise EOFError

    monkeypatch.setattr(Connection, "tables", nonsense)
    with closing(Tables([deaf], call_seconds=SECONDS)) as tables, pytest.raises(Lost):
        tables.names()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (_Said(b"org.apache.hadoop.hbase.TableNotFoundException: nope\n\tat org.apache"), NoTable),
        (_Said(b"org.apache.hadoop.hbase.TableNotEnabledException: t is disabled."), NoTable),
        (
            _Said(b"...RetriesExhaustedWithDetailsException: Failed 1 action: NotServingRegionException: 1 time"),
            Passing,
        ),
        (TApplicationException(6, b"Internal error processing scannerGetList"), Passing),  # type: ignore[arg-type]
        (IllegalArgument(b"scanner ID is invalid"), Passing),
        (IllegalArgument(b"java.lang.IllegalArgumentException: KeyValue size too large"), CellTooLarge),
        (AlreadyExists(b"table name already in use"), TableExists),
        (_Said(b"org.apache.hadoop.hbase.TableExistsException: t"), TableExists),
        (_Said(b"org.apache.hadoop.hbase.security.AccessDeniedException: no"), Denied),
        (_Said(b"...DoNotRetryIOException: Cell[r] with size 11 exceeds limit of 10 bytes"), CellTooLarge),
        (_Said(b"RetriesExhaustedWithDetailsException: Failed 2 actions: AccessDeniedException: 2 times"), Denied),
        (_Said(b"\xff"), StorageUnavailable),
    ],
)
def test_a_refusal_is_told_by_what_it_says_in_one_line(said: TException, expected: type[HootError]) -> None:
    error = refusal(said)
    assert type(error) is expected
    assert "\n" not in error.message
    assert "org.apache" not in error.message


def test_a_scan_whose_scanner_is_gone_in_the_middle_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease was over, or its region has moved: no row is left out, and none comes twice."""
    begun: list[bytes] = []

    class Table:
        def scan(self, row_start: bytes, **_: object) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
            begun.append(row_start)
            yield b"a", {}
            if len(begun) == 1:
                raise IllegalArgument(b"scanner ID is invalid")
            yield b"b", {}

    gateway = ("nowhere", 1)
    with closing(Tables([gateway], call_seconds=SECONDS)) as tables:
        monkeypatch.setitem(tables._pool._lent, gateway, 2)
        connection = SimpleNamespace(table=lambda _: Table(), close=lambda: None)
        monkeypatch.setattr(tables._pool, "_take", lambda: (connection, gateway))
        assert tables.scan("t", b"", b"z", [b"f:"]) == [(b"a", {}), (b"b", {})]
    assert begun == [b"", b""]


def test_the_requests_of_a_large_put_are_on_their_way_at_once_and_none_still_is_when_one_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(b"%d" % number, {b"f:": bytes(REQUEST_BYTES)}) for number in range(PUTS_AT_ONCE)]
    meeting = threading.Barrier(PUTS_AT_ONCE, timeout=30)
    ended: list[bytes] = []

    def mutate(_: str, batches: Sequence[BatchMutation], __: object) -> None:
        meeting.wait()
        if batches[0].row == b"0":
            raise StorageUnavailable("no")
        ended.append(batches[0].row)

    with closing(Tables([("nowhere", 1)], call_seconds=SECONDS)) as tables:
        monkeypatch.setattr(tables, "_mutate", mutate)
        with pytest.raises(StorageUnavailable, match="no"):
            tables.put("t", rows)
        assert sorted(ended) == [b"1", b"2", b"3"]


def test_a_gateway_that_closes_the_connection_on_a_large_request_does_not_take_it(deaf: Address) -> None:
    with closing(Tables([deaf], call_seconds=SECONDS)) as tables:
        assert not tables.takes(100_000)


def test_a_large_request_that_is_answered_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Tables([("nowhere", 1)], call_seconds=SECONDS)) as tables:
        for error in (InvalidRequest("no such name"), StorageUnavailable("no")):
            monkeypatch.setattr(tables, "_ask", _raising(error))
            assert tables.takes(1)


def _raising(error: HootError) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise error

    return call
