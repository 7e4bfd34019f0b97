"""An archive job that dies at any step loses nothing and does nothing twice: the next one ends its work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.archives import Scene


class Died(BaseException):
    """kill -9, as far as a test can tell of it."""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "archive")


class Fatal:
    """Dies at the n-th step of a job, before or after it is done."""

    def __init__(self, at: int) -> None:
        self.at, self.steps = at, 0

    def around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **options: Any) -> Any:
            self._step()
            outcome = step(*args, **options)
            self._step()
            return outcome

        return stepping

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise Died


def test_whatever_step_it_dies_at_the_next_job_ends_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(1, 1000):
        scene, fatal = Scene(tmp_path / f"{at}", days=1), Fatal(at)
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", fatal.around(os.replace))
            patched.setattr(os, "fsync", fatal.around(os.fsync))
            patched.setattr(Path, "mkdir", fatal.around(Path.mkdir))
            patched.setattr(scene.catalog, "record_archived", fatal.around(scene.catalog.record_archived))
            patched.setattr(scene.catalog, "update_queue", fatal.around(scene.catalog.update_queue))
            try:
                scene.run(at_once=1 + at % 3)
            except Died:
                pass
            else:
                assert at > 30, "it has that many steps"
                break
        scene.run()
        scene.check()
        assert scene.run() == 0


def test_a_file_that_was_named_and_not_recorded_is_taken_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(scene.catalog, "record_archived", die)
        with pytest.raises(Died):
            scene.run(at_once=100)
    [before] = {path.stat().st_ino for path in scene.folder.rglob("date=2024-11-21/partition=0/*.parquet")}
    assert scene.run() == 36
    [after] = {path.stat().st_ino for path in scene.folder.rglob("date=2024-11-21/partition=0/*.parquet")}
    assert before == after, "it was not written again"
    scene.check()


def test_a_lost_record_is_found_again_in_the_files(scene: Scene) -> None:
    scene.run()
    recorded = [scene.recorded(partition) for partition in range(2)]
    scene.catalog.managers.persistence.delete_topic_persistence_infos([("orders", 0), ("orders", 1)])
    scene.run()
    assert [scene.recorded(partition) for partition in range(2)] == recorded
    scene.check()
