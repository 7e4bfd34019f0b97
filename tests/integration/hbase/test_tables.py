"""The calls on a real HBase: what they do, and what they survive."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import happybase
import pytest

from delivery.errors import InvalidRequest
from delivery.hbase import NoTable, Tables, parse_gateways
from delivery.hbase.requests import REQUEST_BYTES
from tests.hbase.settings import FRAME_MIB
from tests.integration.embedded import eventually

pytestmark = pytest.mark.hbase
F, G = b"f:", b"g:"


@pytest.fixture
def tables(hbase_gateways: str) -> Iterator[Tables]:
    with closing(Tables(parse_gateways(hbase_gateways))) as tables:
        yield tables


@pytest.fixture
def table(tables: Tables) -> str:
    name = f"t{secrets.token_hex(6)}"
    tables.create(name, ["f", "g"])
    return name


def test_a_table_is_made_once_and_dropped_once(tables: Tables, table: str) -> None:
    tables.create(table, ["other"])
    assert tables.families(table) == {"f": None, "g": None}
    assert table in tables.names()
    tables.drop(table)
    tables.drop(table)
    assert table not in tables.names()
    for call in (
        lambda: tables.get(table, b"r", [F]),
        lambda: tables.get_all(table, [b"r", b"s"], [F]),
        lambda: tables.put(table, [(b"r", {F: b""}), (b"s", {F: b""})]),
        lambda: tables.scan(table, b"", b"\xff", [F]),
        lambda: tables.check_and_put(table, b"r", (F, None), F, b""),
        lambda: tables.families(table),
    ):
        with pytest.raises(NoTable):
            call()


def test_rows_are_put_scanned_and_erased_by_family(tables: Tables, table: str) -> None:
    rows = [(b"%02d" % n, {F: b"", b"f:x": b"%d" % n, G: b"g"}) for n in range(25)]
    tables.put(table, rows)
    assert tables.scan(table, b"", b"\xff", [b"f", b"g"], rows_at_once=7) == rows
    assert tables.scan(table, b"05", b"08", [b"f:x"]) == [(b"%02d" % n, {b"f:x": b"%d" % n}) for n in (5, 6, 7)]
    assert [row for row, _ in tables.scan(table, b"03", b"\xff", [F], limit=2)] == [b"03", b"04"]
    tables.erase(table, [row for row, _ in rows[1:]], ["f"])
    assert [row for row, _ in tables.scan(table, b"", b"\xff", [F])] == [b"00"]
    assert tables.get(table, b"01", [F, G]) == {G: b"g"}


def test_more_than_a_request_holds_goes_in_several(tables: Tables, table: str) -> None:
    rows = [(b"%02d" % n, {F: bytes(400_000)}) for n in range(10)] + [(b"big", {F: bytes(3 * REQUEST_BYTES)})]
    tables.put(table, rows)
    assert sorted(rows) == tables.scan(table, b"", b"\xff", [F])


def test_a_gateway_tells_how_large_a_request_may_be(tables: Tables) -> None:
    assert tables.takes(9 << 20)
    assert not tables.takes((FRAME_MIB << 20) + 1)
    assert tables.names() is not None, "and goes on"


def test_a_cell_put_with_a_life_is_gone_after_it(tables: Tables, table: str) -> None:
    tables.put(table, [(b"short", {F: b"1"})], ttl_ms=1500)
    tables.put(table, [(b"long", {F: b"1"})])
    eventually(lambda: [row for row, _ in tables.scan(table, b"", b"\xff", [F])] == [b"long"], "the cell has expired")


def test_what_was_put_before_a_time_and_not_replaced_is_deleted_for_good(tables: Tables, table: str) -> None:
    tables.put(table, [(b"a", {F: b"-1"}), (b"b", {F: b"+1"}), (b"c", {F: b"-1"}), (b"e", {F: b"-1", G: b"-1"})])
    before, between = tables.touch(table, b"clock", G)
    assert before == 0
    eventually(lambda: tables.touch(table, b"clock", G)[1] > between + 2, "the clock has moved on")
    assert tables.check_and_put(table, b"c", (F, b"-1"), F, b"+2")
    tables.put(table, [(b"d", {F: b"-2"})])
    assert tables.expire(table, F, b"-", between + 1) in (2, 3), "older versions of what was replaced may come by, too"
    left = {b"b": b"+1", b"c": b"+2", b"d": b"-2"}
    assert {row: cells[F] for row, cells in tables.scan(table, b"", b"\xff", [F])} == left
    assert tables.check_and_put(table, b"a", (F, None), F, b"+3"), "and what comes again stays"
    assert tables.get(table, b"a", [F]) == {F: b"+3"}
    assert tables.get(table, b"e", [F, G]) == {G: b"-1"}


def test_one_cell_is_put_while_another_stands(tables: Tables, table: str) -> None:
    assert tables.check_and_put(table, b"r", (F, None), F, b"a")
    assert not tables.check_and_put(table, b"r", (F, None), F, b"b")
    assert tables.check_and_put(table, b"r", (F, b"a"), G, b"c")
    assert not tables.check_and_put(table, b"r", (F, b"b"), G, b"d")
    assert tables.get(table, b"r", [F, G]) == {F: b"a", G: b"c"}


def test_a_gateway_that_is_down_is_passed_over(hbase_gateways: str, table: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = listener.getsockname()
    with closing(Tables([nobody, *parse_gateways(hbase_gateways)])) as both:
        for _ in range(3):
            assert table in both.names()


def test_a_refusal_costs_no_connection(hbase_gateways: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    real = happybase.Connection.open

    def opening(self: happybase.Connection) -> None:
        made.append(self)
        real(self)

    monkeypatch.setattr(happybase.Connection, "open", opening)
    with closing(Tables(parse_gateways(hbase_gateways))) as tables:
        for _ in range(3):
            with pytest.raises(NoTable):
                tables.get("never", b"r", [F])
            with pytest.raises(InvalidRequest):
                tables.put(table, [(b"r", {F: bytes(11 << 20)})])
    assert len(made) == 1


def test_a_connection_that_broke_is_made_anew(hbase_gateways: str, tables: Tables, table: str) -> None:
    tables.put(table, [(b"r", {F: b"1"})])
    for connection, _, _ in tables._pool._idle:
        connection.transport.sock.shutdown(socket.SHUT_RDWR)
    assert tables.get(table, b"r", [F]) == {F: b"1"}


def test_a_scanner_that_the_gateway_has_forgotten_is_opened_anew(
    tables: Tables, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease was over, as after a long pause: no row is missing, and none comes twice."""
    rows = [(b"%02d" % n, {F: b"%d" % n}) for n in range(25)]
    tables.put(table, rows)
    forgotten: list[int] = []
    (connection, _, _), *_ = tables._pool._idle
    scanned = connection.client.scannerGetList

    def forget(number: int, count: int) -> object:
        found = scanned(number, count)
        if not forgotten:
            connection.client.scannerClose(number)
            forgotten.append(number)
        return found

    monkeypatch.setattr(connection.client, "scannerGetList", forget, raising=False)
    assert tables.scan(table, b"", b"\xff", [F], rows_at_once=7) == rows
    assert forgotten


def test_hosts_that_make_a_table_at_the_same_moment_can_all_use_it(tables: Tables) -> None:
    name = f"t{secrets.token_hex(6)}"

    def use(number: int) -> None:
        tables.create(name, ["f"])
        tables.wait_open(name)
        tables.put(name, [(b"%d" % number, {F: b""})])

    with ThreadPoolExecutor(8) as hosts:
        list(hosts.map(use, range(8)))
    assert len(tables.scan(name, b"", b"\xff", [F])) == 8
