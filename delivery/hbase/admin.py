"""Making tables in several regions, through a gateway of HBase's second Thrift interface.

The first one, which everything else uses, makes a table in one region, and with block encoding none. The transport is
the plain one, not framed: from a frame the gateway takes each split key to be the whole frame (HBase 2.6.1, which then
says "All split keys must be unique").
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import thriftpy2
from thriftpy2.protocol import TCyBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TException
from thriftpy2.transport import TCyBufferedTransportFactory

from delivery.hbase.errors import BROKEN, TableExists, Unreached, broken, refusal
from delivery.hbase.gateways import Address

_idl: Any = thriftpy2.load(str(Path(__file__).with_name("admin.thrift")), module_name="hoot_hbase_admin_thrift")


class Admin:
    """A connection per call, of which there is one per queue and host."""

    def __init__(self, gateways: Sequence[Address], *, call_seconds: float) -> None:
        """Gateways of the second interface, tried in turn."""
        self._gateways, self._call_ms = gateways, round(call_seconds * 1000)

    def create(self, table: str, families: Sequence[str], splits: Sequence[bytes]) -> None:
        """Make a table that begins a new region at each of `splits`; one of that name may be there already.

        Bloom filters are by row, since single rows are read; keys are stored as differences, since they are long and
        much alike. Raises StorageUnavailable.
        """
        made = [
            _idl.TColumnFamilyDescriptor(
                name=family.encode(), bloomnFilterType=_idl.TBloomFilterType.ROW,
                dataBlockEncoding=_idl.TDataBlockEncoding.FAST_DIFF, maxVersions=1,
            )
            for family in families
        ]  # fmt: skip
        namespace, _, qualifier = table.rpartition(":")
        name = _idl.TTableName(ns=namespace.encode() or None, qualifier=qualifier.encode())
        self._ask(_idl.TTableDescriptor(tableName=name, columns=made), list(splits))

    def _ask(self, table: Any, splits: list[bytes]) -> None:
        unreached = None
        for host, port in self._gateways:
            try:
                client = make_client(
                    _idl.THBaseService, host, port, timeout=self._call_ms,
                    proto_factory=TCyBinaryProtocolFactory(),  # type: ignore[no-untyped-call]
                    trans_factory=TCyBufferedTransportFactory(),
                )  # fmt: skip
            except BROKEN as error:
                unreached = error
                continue
            try:
                client.createTable(table, splits)
            except BROKEN as error:
                raise broken(error, f"{host}:{port}") from error
            except TException as error:
                refused = refusal(error)
                if not isinstance(refused, TableExists):
                    raise refused from error
            finally:
                client.close()
            return
        raise Unreached("no gateway of HBase's second Thrift interface can be reached") from unreached
