"""What HBase's own settings mean for what was acknowledged, and where they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from delivery.errors import ConfigError, StorageUnavailable
from delivery.hbase import parse_gateways
from delivery.hbase.gateways import Address
from delivery.hbase.site import PORT_DEFAULT, problems, read_settings

MIB = 1 << 20
SOUND = {
    "hbase.rootdir": "hdfs://namenode:8020/hbase", "hbase.defaults.for.version": "2.6.1-hadoop3",
    "hbase.unsafe.stream.capability.enforce": "true", "hbase.server.keyvalue.maxsize": "10485760",
    "hbase.client.keyvalue.maxsize": "0", "dfs.replication": "3", "hbase.regionserver.hlog.enabled": "true",
}  # fmt: skip


@contextmanager
def page(status: int, body: bytes) -> Iterator[Address]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/conf?format=json" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield "127.0.0.1", server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_nothing_is_said_of_settings_that_keep_what_was_acknowledged() -> None:
    assert list(problems(SOUND, 9 * MIB)) == []
    assert list(problems({}, 9 * MIB)) == [], "HBase's own defaults, where they are not told"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hbase.regionserver.hlog.enabled": "false"}, "hbase.regionserver.hlog.enabled is false"),
        ({"hbase.hlog.split.skip.errors": "true"}, "hbase.hlog.split.skip.errors is true"),
        ({"hbase.rootdir": "file:///var/hbase"}, "its log is in file:///var/hbase, on one machine"),
        ({"hbase.wal.dir": "file:///var/wal"}, "its log is in file:///var/wal, on one machine"),
        ({"hbase.unsafe.stream.capability.enforce": "false"}, "if hdfs cannot flush"),
        ({"dfs.replication": "1"}, "dfs.replication is 1"),
        ({"hbase.server.keyvalue.maxsize": "1048576"}, "hbase.server.keyvalue.maxsize is 1048576"),
        ({"hbase.client.keyvalue.maxsize": "1048576"}, "hbase.client.keyvalue.maxsize is 1048576"),
        ({"hbase.defaults.for.version": "3.0.0"}, "it is HBase 3.0.0"),
    ],
)
def test_each_setting_that_loses_or_refuses_something_is_told_by_its_name(changed: dict[str, str], said: str) -> None:
    (told,) = problems(SOUND | changed, 9 * MIB)
    assert said in told


def test_a_log_on_one_machine_is_told_once_whether_or_not_flushing_is_enforced() -> None:
    (told,) = problems(
        SOUND | {"hbase.rootdir": "file:///d", "hbase.unsafe.stream.capability.enforce": "false"}, 9 * MIB
    )
    assert "on one machine" in told


def test_settings_are_read_from_a_web_page() -> None:
    told = {"properties": [{"key": "a", "value": "1", "isFinal": False, "resource": "x"}, {"key": "b", "value": None}]}
    with page(200, json.dumps(told).encode()) as address:
        assert read_settings(address, 30) == {"a": "1"}


@pytest.mark.parametrize(
    ("status", "body"), [(403, b"no"), (200, b"<html>"), (200, b"[]"), (200, b"\xff"), (200, b'{"properties": [1]}')]
)
def test_a_page_that_does_not_tell_is_named(status: int, body: bytes) -> None:
    with page(status, body) as address, pytest.raises(StorageUnavailable, match=f"127.0.0.1:{address[1]}/conf"):
        read_settings(address, 30)


def test_a_page_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1:1/conf of HBase cannot be read"):
        read_settings(("127.0.0.1", 1), 5)


def test_a_page_without_a_port_is_that_of_a_master() -> None:
    assert parse_gateways("master,region-1:16030", PORT_DEFAULT) == [("master", 16010), ("region-1", 16030)]
    with pytest.raises(ConfigError):
        parse_gateways("master:x", PORT_DEFAULT)
