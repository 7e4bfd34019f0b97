"""One Spark and one engine for all tests that a worker runs here: each takes its time to start."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from delivery.embedded import EmbeddedZooKeeper
from tests.integration.engine import Engine, hosted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def running(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine of one host."""
    with hosted(zookeeper, tmp_path_factory.mktemp("engine")) as started:
        yield started


@pytest.fixture(autouse=True)
def plain_logs() -> Iterator[None]:
    """PySpark's loggers of what it raises keep to themselves, so pytest adds its handlers to them; and they make each
    handler that is added write JSON, for all tests that follow.
    """
    yield
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).propagate = True


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine."""
    from delivery.spark.session import local_session

    session = local_session("hoot-tests", tmp_path_factory.mktemp("spark"))
    try:
        yield session
    finally:
        session.stop()
