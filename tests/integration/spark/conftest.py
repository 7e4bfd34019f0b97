"""One Spark and one engine for all tests that a worker runs here: each takes its time to start."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from delivery.embedded import EmbeddedZooKeeper
from tests.integration.engine import Engine, hosted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTINGS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Of a few thousand rows each query is over before the code that Spark would compile for it."""


@pytest.fixture(scope="session")
def running(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine of one host."""
    with hosted(zookeeper, tmp_path_factory.mktemp("engine")) as started:
        yield started


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine.

    PySpark's loggers make each handler that is added to them write JSON; pytest adds its own, which all tests share.
    """
    from pyspark.logger import PySparkLogger

    from delivery.spark.session import local_session

    with mock.patch.object(PySparkLogger, "addHandler", logging.Logger.addHandler):
        session = local_session("hoot-tests", tmp_path_factory.mktemp("spark"), settings=SETTINGS)
        try:
            yield session
        finally:
            session.stop()
