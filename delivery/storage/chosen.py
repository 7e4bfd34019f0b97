"""The message store that a host's settings ask for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from delivery.config import HostConfig
from delivery.errors import ConfigError
from delivery.storage.base import MessageStore
from delivery.storage.log import SegmentedLog

FRAME_BYTES: Final = 9 << 20
"""The largest piece of a batch that goes into a cell, with what is around it."""

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from delivery.model import Layout


def open_store(config: HostConfig) -> MessageStore:
    """The store, which whoever asked for it closes; blocking. `config` has been checked.

    Raises DataFolderError and LayoutMismatch for a folder that cannot be; for HBase ConfigError where its client is not
    installed or no gateway is named, and StorageUnavailable when none of them answers.
    """
    if config.store == "log":
        return SegmentedLog(config.data, segment_bytes=config.segment_bytes)
    return _hbase(config)


def _hbase(config: HostConfig) -> MessageStore:
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
        store = HBaseStore(tables, prefix=config.hbase_prefix, layout=layout, admin=admin)
        store.queues()  # so that a wrong address ends the start, and not every publish after it
        if not tables.takes(FRAME_BYTES):
            log.warning(
                "HBase's Thrift gateways take no request of %d MiB, which the largest message needs, and lose it:"
                " set hbase.regionserver.thrift.framed.max_frame_size_in_mb to 16 or more",
                FRAME_BYTES >> 20,
            )
    except BaseException:
        tables.close()
        raise
    return store
