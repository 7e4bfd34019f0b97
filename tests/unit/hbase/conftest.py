"""A MetaStore on tables of HBase in memory."""

from __future__ import annotations

import pytest

from delivery.metastore.tables.base import MetastoreScannableTable
from tests.hbase_tables import Data
from tests.metastore_hbase import Faulty, opened


@pytest.fixture
def data() -> Data:
    return {}


@pytest.fixture
def hbase(data: Data) -> Faulty:
    return Faulty(data)


@pytest.fixture
def table(hbase: Faulty) -> MetastoreScannableTable:
    return opened(hbase).create_scannable_table("t")
