"""The archive job moves what is closed, once, whoever else is at work; bad input is one error and moves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from delivery.cluster.sealing import Sealed
from delivery.errors import ArchiveRefused, InvalidRequest, StorageUnavailable, UnknownPartition
from delivery.ids import first_id_at
from delivery.metastore.managers.records import SealedRange
from delivery.metastore.records import QueueRecord
from delivery.metastore.tables.versions import Version
from delivery.model import ArchivedRange, QueueSettings
from delivery.spark import ranges
from delivery.spark.jobs.archive import Job
from delivery.storage.archive.files import Reader
from delivery.storage.archive.names import named, path_of
from delivery.storage.archive.writing import Stretch, Written
from tests.archives import AGED, DAY_MS, START_MS, Scene
from tests.stores import batches_of


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "archive")


def test_what_is_closed_becomes_files_of_a_day_and_nothing_is_moved_twice(scene: Scene) -> None:
    assert scene.run() == 36
    assert scene.run() == 0
    scene.check()
    files = [path for path in scene.folder.rglob("*.parquet") if "partition=1" in str(path)]
    days = sorted(path.parent.parent.name for path in files)
    assert days == ["date=2024-11-21", "date=2024-11-22"]
    assert scene.catalog.queue("orders").settings.archive == str(scene.folder)


def test_a_day_of_many_messages_is_divided_and_no_batch_is(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "TASK_MESSAGES", 2)
    assert scene.run(at_once=3) == 36
    assert [one.messages for one in scene.recorded(0)] == [3] * 6
    scene.check()


def test_what_comes_later_goes_on_behind_it(scene: Scene) -> None:
    assert scene.run(until_ms=START_MS + DAY_MS, partitions=[1]) == 9
    assert scene.recorded(0) == ()
    assert scene.run() == 27
    scene.put(scene.keys[0], START_MS + 5 * DAY_MS)
    scene.all[0] = batches_of(scene.store, scene.keys[0])
    assert scene.run() == 3
    scene.check()


def test_a_dry_run_tells_what_would_be_and_touches_nothing(scene: Scene) -> None:
    planned = scene.job().planned()
    assert [(one.partition, one.files, one.messages, one.bytes) for one in planned] == [(0, 2, 18, 0), (1, 2, 18, 0)]
    assert not scene.folder.exists()
    assert scene.catalog.queue("orders").settings.archive is None


def test_a_partition_of_which_retention_has_dropped_everything_is_no_work(scene: Scene) -> None:
    scene.store.trim(scene.keys[0], AGED, START_MS + 99 * DAY_MS)
    job = scene.job()
    job._read()
    assert len([one for one in job._plan() if one.partition == 0]) <= 1
    assert scene.run() == 18
    scene.all[0] = []
    scene.check()


def test_the_engines_own_batches_are_archived_too(scene: Scene) -> None:
    """Those on a day without messages, too."""
    for day in (5, 6, 8):
        scene.put(scene.keys[0], START_MS + day * DAY_MS, topic="hoot.mark" if day < 8 else "")
    scene.all[0] = batches_of(scene.store, scene.keys[0])
    assert scene.run() == 39
    assert [one.messages for one in scene.recorded(0)] == [9, 9, 0, 0, 3]
    scene.check()


def test_a_host_that_gives_less_than_it_holds_is_noticed(scene: Scene) -> None:
    scene.put(scene.keys[0], START_MS + 5 * DAY_MS, topic="withheld")
    scene.withheld = b"withheld"
    scene.put(scene.keys[0], START_MS + 5 * DAY_MS + 10)
    with pytest.raises(ArchiveRefused, match="gave 3 of the 6 messages"):
        scene.run()
    assert [one.messages for one in scene.recorded(0)] == [9, 9]


def test_a_damaged_or_foreign_file_is_hidden_and_not_taken_up(scene: Scene) -> None:
    scene.run(until_ms=START_MS + DAY_MS)
    [known] = scene.recorded(0)[-1:]
    place = path_of(scene.folder, "orders", scene.record.generation, 0, known)
    wrong = place.with_name(place.name.replace(f"{known.first_id}", f"{known.until + 5}").replace(
        f"-{known.until:019}-", f"-{known.until + 9:019}-"))  # fmt: skip
    wrong.write_bytes(place.read_bytes()[:-9])
    assert named(wrong.name) is not None
    scene.run()
    assert not wrong.exists()
    assert wrong.with_name(f".{wrong.name}").exists()
    scene.check()


def test_two_jobs_do_not_meet(scene: Scene) -> None:
    def both(folder: Path, stretches: Sequence[Stretch]) -> list[Written | None]:
        with pytest.raises(ArchiveRefused, match="another job archives queue 'orders'"):
            scene.run()
        return scene.spread(folder, stretches)

    scene.job().run(both, 100, lambda *_: None)
    scene.check()


@pytest.fixture
def meanwhile(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What others do between a job's look at the queue's record and its writing of it."""
    manager, found = scene.catalog.managers.queues, list[Callable[[], object]]()
    write = manager.update_queue

    def others_first(record: QueueRecord, version: Version) -> Version:
        while found:
            found.pop()()
        return write(record, version)

    monkeypatch.setattr(manager, "update_queue", others_first)
    return found


def test_of_two_first_jobs_one_chooses_the_folder(
    scene: Scene, tmp_path: Path, meanwhile: list[Callable[[], object]]
) -> None:
    """Though both have seen that there is none, and no lock in one folder keeps them apart."""
    other = scene.job(tmp_path / "elsewhere", until_ms=START_MS + DAY_MS)
    meanwhile.append(lambda: other.run(scene.spread, 100, lambda *_: None))
    with pytest.raises(InvalidRequest, match="has its archive in"):
        scene.run()
    assert scene.catalog.queue("orders").settings.archive == str(tmp_path / "elsewhere")
    assert sum(one.messages for one in scene.recorded(0)) == 9


def test_settings_that_are_changed_while_a_job_chooses_the_folder_stay(
    scene: Scene, meanwhile: list[Callable[[], object]]
) -> None:
    def update() -> None:
        scene.catalog.update_queue("orders", lambda present: msgspec.structs.replace(present, ttl_seconds=60.0))

    meanwhile.append(update)
    scene.run()
    settings = scene.catalog.queue("orders").settings
    assert (settings.archive, settings.ttl_seconds) == (str(scene.folder), 60.0)


def test_what_another_job_recorded_meanwhile_stands(scene: Scene) -> None:
    """As on a file system without locks."""
    other = ArchivedRange(1, first_id_at(START_MS) - 1, 1, 1, 1)

    def meanwhile(folder: Path, stretches: Sequence[Stretch]) -> list[Written | None]:
        scene.catalog.record_archived("orders", scene.record.generation, 0, (), [other])
        return scene.spread(folder, stretches)

    with pytest.raises(ArchiveRefused, match="another job archived orders/0 meanwhile"):
        scene.job().run(meanwhile, 100, lambda *_: None)
    assert scene.recorded(0) == (other,)


def test_what_older_epochs_left_and_what_is_archived_do_not_wipe_each_other_out(scene: Scene) -> None:
    left = (SealedRange(1, 1, 5),)
    assert scene.catalog.record_sealed([Sealed("orders", 0, 2, left)]) == [None]
    scene.run()
    files = scene.recorded(0)
    assert scene.catalog.record_sealed([Sealed("orders", 0, 3, (*left, SealedRange(2, 6, 9)))]) == [None]
    assert scene.recorded(0) == files
    found = scene.catalog.managers.persistence.read_topic_persistence_info("orders", 0)
    assert found is not None
    assert len(found.value.ranges) == 2


def test_a_queue_made_anew_meanwhile_has_nothing_recorded(scene: Scene) -> None:
    def meanwhile(folder: Path, stretches: Sequence[Stretch]) -> list[Written | None]:
        written = scene.spread(folder, stretches)
        scene.catalog.delete_queue("orders")
        scene.catalog.create_queue("orders", QueueSettings(partitions=2))
        return written

    with pytest.raises(ArchiveRefused, match="deleted and made again"):
        scene.job().run(meanwhile, 100, lambda *_: None)
    assert scene.recorded(0) == ()


def test_bad_input_is_one_clear_error(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="name a folder with --to"):
        Job(scene.catalog, scene.hosts, scene.record, None)
    with pytest.raises(UnknownPartition):
        scene.job(partitions=[7])
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArchiveRefused, match="is no folder"):
        scene.job(tmp_path / "file")
    with pytest.raises(ArchiveRefused, match=r"cannot use .* as an archive: Not a directory"):
        scene.job(tmp_path / "file" / "below").run(scene.spread, 1, lambda *_: None)
    scene.run()
    with pytest.raises(InvalidRequest, match="has its archive in"):
        scene.job(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    assert scene.job(None).folder == scene.folder


def test_an_executor_that_sees_another_folder_says_so(scene: Scene, tmp_path: Path) -> None:
    def elsewhere(folder: Path, stretches: Sequence[Stretch]) -> list[Written | None]:
        return scene.spread(tmp_path / "not-mounted", stretches)

    with pytest.raises(ArchiveRefused, match="must be on a file system that the job, its executors"):
        scene.job().run(elsewhere, 100, lambda *_: None)
    assert scene.recorded(0) == ()


def test_a_host_that_fails_ends_the_job_and_what_is_recorded_stays(scene: Scene) -> None:
    rounds = 0

    def failing(folder: Path, stretches: Sequence[Stretch]) -> list[Written | None]:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise StorageUnavailable("gone")
        return scene.spread(folder, stretches)

    with pytest.raises(StorageUnavailable):
        scene.job().run(failing, 1, lambda *_: None)
    assert len(scene.recorded(0)) == 1
    scene.run()
    scene.check()


def test_statistics_tell_which_files_and_row_groups_a_range_needs(scene: Scene) -> None:
    scene.run()
    files = scene.recorded(0)
    for one in files:
        reader = Reader(path_of(scene.folder, "orders", scene.record.generation, 0, one))
        assert [group.first_id for group in reader.groups] == [one.first_id]
        columns = [reader._file.metadata.row_group(0).column(number) for number in range(2)]
        assert all(column.statistics.has_min_max and column.compression == "ZSTD" for column in columns)
        reader.close()
