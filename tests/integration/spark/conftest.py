"""One Spark and one engine for all tests that a worker runs here: each takes its time to start."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from delivery import connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.local import LocalEngine
from tests.integration.engine import Engine, engine as own_engine, hosted
from tests.integration.spark.cluster import Cluster, cluster
from tests.integration.spark.story import PARTITIONS, QUEUE, Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTINGS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Of a few thousand rows each query is over before the code that Spark would compile for it."""


@pytest.fixture(scope="session")
def running(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine of one host."""
    with hosted(zookeeper, tmp_path_factory.mktemp("engine")) as started:
        yield started


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[tuple[LocalEngine, Cluster]]:
    """An engine with a ZooKeeper of its own, and a standalone cluster beside it."""
    with own_engine(tmp_path / "engine") as started, cluster(tmp_path / "cluster") as made:
        yield started, made


@pytest.fixture
def story(tmp_path: Path, standalone: tuple[LocalEngine, Cluster]) -> Iterator[Story]:
    """A stream on that cluster, whose driver runs."""
    running, made = standalone
    with connect(running.address) as client:
        client.create_queue(QUEUE, partitions=PARTITIONS)
        told = Story(tmp_path, made, running, client)
        try:
            yield told
        finally:
            if told.driver.poll() is None:
                told.kill_driver()


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
