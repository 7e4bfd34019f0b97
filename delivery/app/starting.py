"""From settings to a region host that runs: its store, its session, its ports and its name, and their end.

Whatever fails on the way in undoes what was done before it.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from delivery.app.host import Host
from delivery.config import HostConfig, software_version
from delivery.errors import HootError
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.placed import hbase_place
from delivery.metastore.records import HostRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import ArchivedRange
from delivery.rpc.server import open_listeners
from delivery.storage.archive.store import ArchivedStore
from delivery.storage.base import MessageStore, PartitionKey
from delivery.storage.chosen import open_store

_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


async def serve(
    config: HostConfig,
    *,
    stop: trio.Event | None = None,
    task_status: trio.TaskStatus[HostRecord] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a region host until `stop` is set; `started` gives its record, with the ports that were taken.

    Cancelled, it stops at once, without grace; checkpoints are saved in either case. Raises before `started`:
    ConfigError, DataFolderError, LayoutMismatch, PortInUse, StorageUnavailable and MetadataUnavailable, the last
    perhaps in the ExceptionGroup of a nursery.
    """
    config.check()
    zookeeper = ZooKeeperClient(config.zookeeper, session_timeout=config.session_timeout_seconds)
    place = hbase_place(config.hbase_metadata, config.hbase_prefix, config.hbase_thrift)
    catalog = open_catalog(zookeeper, place, call_seconds=config.hbase_call_seconds)
    async with _store(config, catalog) as store, _session(zookeeper, catalog):
        thrift = await open_listeners(config.address, config.port)
        http = [] if config.http_port is None else await _second(thrift, config.address, config.http_port)
        try:
            record = _record(config, _port(thrift), _port(http) if http else None)
            archived = ArchivedStore(store, partial(_archived, catalog))
            host = Host(config, record, archived, zookeeper, catalog, thrift)
            await host.run(http, trio.Event() if stop is None else stop, task_status)
        finally:
            await _close([*thrift, *http])


def _archived(catalog: Catalog, keys: Sequence[PartitionKey]) -> Sequence[tuple[ArchivedRange, ...] | HootError]:
    return catalog.archived_of([(key.queue, key.partition) for key in keys])


@asynccontextmanager
async def _store(config: HostConfig, catalog: Catalog) -> AsyncIterator[MessageStore]:
    store = await trio.to_thread.run_sync(open_store, config, catalog)
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(store.close)


@asynccontextmanager
async def _session(zookeeper: ZooKeeperClient, catalog: Catalog) -> AsyncIterator[None]:
    try:
        await trio.to_thread.run_sync(zookeeper.start)
        await trio.to_thread.run_sync(catalog.ensure_layout)
        yield
    finally:
        with trio.CancelScope(shield=True):
            catalog.close()
            await trio.to_thread.run_sync(zookeeper.stop)


async def _second(first: list[trio.SocketListener], address: str, port: int) -> list[trio.SocketListener]:
    try:
        return await open_listeners(address, port)
    except BaseException:
        await _close(first)
        raise


async def _close(listeners: list[trio.SocketListener]) -> None:
    """Close what nobody has taken over; closing twice is fine."""
    with trio.CancelScope(shield=True):
        for listener in listeners:
            await listener.aclose()


def _port(listeners: list[trio.SocketListener]) -> int:
    port: int = listeners[0].socket.getsockname()[1]
    return port


def _record(config: HostConfig, port: int, http_port: int | None) -> HostRecord:
    """What others learn of this host; the session is filled in when it registers."""
    address = socket.getfqdn() if config.address in _ANY_ADDRESS else config.address
    return HostRecord(
        host=secrets.token_hex(8), address=address, port=port, http_port=http_port, session=0,
        version=software_version(), started_ms=time.time_ns() // 1_000_000, networks=config.networks,
    )  # fmt: skip
