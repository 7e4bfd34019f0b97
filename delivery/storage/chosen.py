"""The message store that a host's settings ask for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from delivery.config import HostConfig
from delivery.errors import ConfigError, StorageUnavailable
from delivery.storage.base import MessageStore
from delivery.storage.homes import Register
from delivery.storage.log import SegmentedLog

FRAME_BYTES: Final = 9 << 20
"""The largest piece of a batch that goes into a cell, with what is around it."""

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from delivery.hbase import Tables
    from delivery.model import Layout
    from delivery.storage.hbase import HBaseStore


def open_store(config: HostConfig, register: Register) -> MessageStore:
    """The store, which whoever asked for it closes; blocking. `config` has been checked.

    The `register`, which is asked when a partition is opened, keeps in which store a queue is, for good.

    Raises DataFolderError and LayoutMismatch for a folder that cannot be; for HBase ConfigError where its client is not
    installed or no gateway is named, and StorageUnavailable when none of them answers.
    """
    if config.store == "log":
        return SegmentedLog(config.data, segment_bytes=config.segment_bytes, register=register)
    return _hbase(config, register)


def _hbase(config: HostConfig, register: Register) -> MessageStore:
    try:
        from delivery.hbase import Admin, Tables, parse_gateways
        from delivery.storage.hbase import HBaseStore
    except ModuleNotFoundError as error:
        raise ConfigError(f"the store HBase needs {error.name}; install it with: pip install 'hoot[hbase]'") from error
    second = parse_gateways(config.hbase_thrift2) if config.hbase_thrift2 else []
    admin = Admin(second, call_seconds=config.hbase_call_seconds) if second else None
    tables = Tables(parse_gateways(config.hbase_thrift), call_seconds=config.hbase_call_seconds)
    try:
        layout = cast("Layout", config.hbase_layout)
        store = HBaseStore(tables, prefix=config.hbase_prefix, layout=layout, admin=admin, register=register)
        _look_around(config, tables, store)
    except BaseException:
        tables.close()
        raise
    return store


def _look_around(config: HostConfig, tables: Tables, store: HBaseStore) -> None:
    """Warn of what is wrong with this HBase. Raises where it cannot be reached, as every publish would."""
    from delivery.hbase import parse_gateways
    from delivery.hbase.site import PORT_DEFAULT, problems, read_settings

    store.look_around()
    if not tables.takes(FRAME_BYTES):
        log.warning(
            "HBase's Thrift gateways take no request of %d MiB, which the largest message needs, and lose it:"
            " set hbase.regionserver.thrift.framed.max_frame_size_in_mb to 16 or more",
            FRAME_BYTES >> 20,
        )
    for page in parse_gateways(config.hbase_web, PORT_DEFAULT) if config.hbase_web else []:
        try:
            found = list(problems(read_settings(page, config.hbase_call_seconds), FRAME_BYTES))
        except StorageUnavailable as error:
            found = [error.message]
        for problem in found:
            log.warning("HBase at %s:%d: %s", *page, problem)
