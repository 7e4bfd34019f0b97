"""The rates of `hoot bench --store hbase` beside those of happybase by itself, in the same table and the same run."""

from __future__ import annotations

import random

import msgspec

from delivery.bench.report import Result
from delivery.metastore.records import QueueRecord

ROWS_MAX = 50_000
_BESIDE = 0xFFFF
"""A partition that no queue has: its rows are behind all others and are dropped with the table."""


class Raw(msgspec.Struct, frozen=True):
    """Where the tables are that an engine of this run has its messages in."""

    gateways: str
    prefix: str

    def host_options(self, layout: str, *, from_memory: bool) -> list[str]:
        """Those of `hoot serve`; not `from_memory`: what is delivered is to be read from HBase."""
        named = [f"hbase_prefix={self.prefix}", f"hbase_layout={layout}"]
        named += [] if from_memory else ["tail_cache_bytes=0"]
        settings = [part for one in named for part in ("--set", one)]
        return ["--store", "hbase", "--hbase-thrift", self.gateways, *settings]

    def beside(self, found: Result, queue: QueueRecord, messages: int) -> Result:
        """The result with its ratio to happybase putting rows of that size, or scanning them for a drain."""
        from delivery.hbase import parse_gateways
        from delivery.hbase.plain import put_rate, scan_rate
        from delivery.storage.hbase import keys

        gateway = parse_gateways(self.gateways)[0]
        table = keys.table_name(self.prefix, queue.name, queue.generation)
        body = random.randbytes(found.size)
        rows = [
            (keys.message_row(_BESIDE, 1 + number, 1), {keys.BODY: body}) for number in range(min(messages, ROWS_MAX))
        ]
        rate = put_rate(gateway, table, rows)
        if found.case == "drain":
            rate = scan_rate(gateway, table, rows)
        return msgspec.structs.replace(
            found, raw_per_second=round(rate, 1), ratio_to_raw=round(found.messages_per_second / rate, 3)
        )
