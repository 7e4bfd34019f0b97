"""Hosts that have one ZooKeeper and several data folders: each queue is in one of them, and nowhere served as empty."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from delivery.errors import WrongStore
from delivery.model import Durability, QueueSettings
from delivery.storage.homes import OwnRegister
from delivery.storage.log import SegmentedLog
from tests.stores import KEY, OTHER, batch, bodies_of, store_all


@pytest.fixture
def register() -> OwnRegister:
    """Which several stores share, as hosts do their ZooKeeper."""
    return OwnRegister()


@pytest.mark.parametrize("durability", ["fsync", "os", "memory"])
def test_a_queue_is_not_served_from_a_data_folder_that_has_nothing_of_it(
    tmp_path: Path, register: OwnRegister, durability: Durability
) -> None:
    first, second = (SegmentedLog(tmp_path / name, register=register) for name in ("a", "b"))
    settings = QueueSettings(durability=durability)
    first.open(KEY, 1, settings)
    for key in (KEY, OTHER):
        with pytest.raises(WrongStore, match="hoot serve --data") as caught:
            second.open(key, 2, settings)
        assert json.loads((tmp_path / "a" / "layout.json").read_text())["id"] in caught.value.message
    assert second.queues() == []
    store_all(first, [batch(1)])


def test_a_data_folder_may_be_moved(tmp_path: Path, register: OwnRegister) -> None:
    log = SegmentedLog(tmp_path / "a", register=register)
    log.open(KEY, 1, QueueSettings())
    store_all(log, [batch(1, [b"kept"])])
    log.close()
    shutil.move(tmp_path / "a", tmp_path / "b")
    again = SegmentedLog(tmp_path / "b", register=register)
    again.open(KEY, 2, QueueSettings())
    again.open(OTHER, 2, QueueSettings())
    assert bodies_of(again) == [b"kept"]


def test_a_data_folder_that_was_lost_is_no_empty_queue(tmp_path: Path, register: OwnRegister) -> None:
    log = SegmentedLog(tmp_path / "a", register=register)
    log.open(KEY, 1, QueueSettings())
    log.close()
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(WrongStore):
        SegmentedLog(tmp_path / "a", register=register).open(KEY, 2, QueueSettings())
