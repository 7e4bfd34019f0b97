"""HBase through its Thrift gateways: the one place that knows happybase.

Who does what: `gateways` decides which gateway is asked next, `pool` keeps connections to them, `errors` says what a
failure means, `requests` cuts and words what is asked, `tables` has the calls, `admin` makes tables in several regions,
and `site` reads how HBase is set up. Everything here is blocking and thread-safe.
"""

from __future__ import annotations

from delivery.hbase.admin import Admin
from delivery.hbase.errors import CellTooLarge, NoTable
from delivery.hbase.gateways import parse_gateways
from delivery.hbase.requests import Cells, Row
from delivery.hbase.tables import Tables

__all__ = ["Admin", "CellTooLarge", "Cells", "NoTable", "Row", "Tables", "parse_gateways"]
