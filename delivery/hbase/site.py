"""How HBase is set up, by its own web pages: the Thrift gateways tell no settings.

The master, each region server and each gateway have a page `/conf` (ports 16010, 16030 and 9095 unless set otherwise),
which tells those of that program. What is judged here are those that lose what was acknowledged, or refuse what Hoot
stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

import msgspec

from delivery.hbase.errors import Unreached
from delivery.hbase.gateways import Address

PORT_DEFAULT: Final = 16010
"""Of the master's pages."""
PAGE_BYTES_MAX: Final = 16 << 20
TESTED: Final = "2."
"""What versions that Hoot is known to work with begin with."""

Settings = Mapping[str, str]


class _Property(msgspec.Struct):
    key: str
    value: str | None = None


class _Page(msgspec.Struct):
    properties: list[_Property]


def read_settings(page: Address, seconds: float) -> dict[str, str]:
    """All settings of the program whose web pages are there. Raises Unreached when they cannot be read."""
    host, port = page
    try:
        with closing(HTTPConnection(host, port, timeout=seconds)) as connection:
            connection.request("GET", "/conf?format=json")
            answer = connection.getresponse()
            body = answer.read(PAGE_BYTES_MAX)
    except (OSError, HTTPException) as error:
        raise Unreached(f"the web page {host}:{port}/conf of HBase cannot be read: {error!r}") from error
    if answer.status != 200:
        raise Unreached(f"the web page {host}:{port}/conf of HBase cannot be read: {answer.status} {answer.reason}")
    try:
        found = msgspec.json.decode(body, type=_Page)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreached(f"{host}:{port}/conf is no page of HBase with its settings: {error}") from error
    return {one.key: one.value for one in found.properties if one.value is not None}


def problems(settings: Settings, cell_bytes: int) -> Iterator[str]:
    """What of a program's settings loses what was acknowledged, or refuses a cell of `cell_bytes`; a line each."""
    version = settings.get("hbase.defaults.for.version", TESTED)
    if not version.startswith(TESTED):
        yield f"it is HBase {version}, and Hoot was tested with {TESTED}x"
    if settings.get("hbase.regionserver.hlog.enabled") == "false":
        yield (
            "hbase.regionserver.hlog.enabled is false: nothing is written to a log, and a region server that dies takes"
            " along what was acknowledged"
        )
    if settings.get("hbase.hlog.split.skip.errors") == "true":
        yield "hbase.hlog.split.skip.errors is true: of a log that is damaged the rest is lost without a word"
    yield from _file_system(settings)
    for name in ("hbase.server.keyvalue.maxsize", "hbase.client.keyvalue.maxsize"):
        limit = _number(settings.get(name), 0)
        if 0 < limit < cell_bytes:
            yield f"{name} is {limit}: messages and batches above that are refused; {cell_bytes} would do"


def _file_system(settings: Settings) -> Iterator[str]:
    """What its log is written to."""
    folder = settings.get("hbase.wal.dir") or settings.get("hbase.rootdir", "")
    scheme = urlsplit(folder).scheme
    if scheme == "file":
        yield (
            f"its log is in {folder}, on one machine: what was acknowledged survives programs that are killed, but no"
            " power cut and not the loss of that disk"
        )
    elif settings.get("hbase.unsafe.stream.capability.enforce") == "false":
        yield (
            f"hbase.unsafe.stream.capability.enforce is false: if {scheme or 'its file system'} cannot flush, a region"
            " server that dies takes along what was acknowledged"
        )
    if scheme == "hdfs" and _number(settings.get("dfs.replication"), 3) < 2:
        yield "dfs.replication is 1: the loss of one disk loses what was acknowledged"


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.strip().isdecimal() else default
