"""What `hoot bench` prints, and what keeps it from printing: lost, doubled and reordered messages, and bad use."""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import msgspec
import pytest

from delivery.bench.asking import check_ids
from delivery.bench.catalogue import CASES, Case
from delivery.bench.checking import BenchFailed, check_by_key, check_delivered, check_stored, delivered
from delivery.bench.cli import _OF_THE_COMMAND
from delivery.bench.fencing import Gauge, measured
from delivery.bench.groups import moves_of
from delivery.bench.report import Result, described, result, summary, with_fencing
from delivery.bench.stage import Plan, Setup
from delivery.bench.tallies import FAILING, NotYet, SpreadTally, StormTally
from delivery.cli import run
from delivery.client import PartitionBounds, Queue
from delivery.ids import MessageId
from delivery.messaging.polling import Given
from delivery.model import Message, QueueSettings
from delivery.storage.base import PartitionKey
from delivery.storage.log import SegmentedLog
from delivery.storage.log.epochs import Epochs

WANTED = {0: [1, 2, 3], 2: [1, 2]}


@pytest.mark.parametrize(
    ("got", "text"),
    [
        ({0: [1, 2, 3], 2: [1]}, "partition 2: 2 messages were published and 1 delivered"),
        ({0: [1, 2, 3]}, "partition 2: 2 messages were published and 0 delivered"),
        ({0: [1, 2, 2, 3], 2: [1, 2]}, "partition 0: 3 messages were published and 4 delivered"),
        ({0: [1, 2, 4], 2: [1, 2]}, "partition 0.*not the same"),
        ({0: [1, 3, 2], 2: [1, 2]}, "partition 0: messages were delivered out of order"),
        ({0: [1, 2, 3], 1: [1, 2]}, "partition 1: 0 messages were published and 2 delivered"),
    ],
    ids=["one lost", "a partition lost", "one doubled", "another one", "reordered", "another partition's"],
)
def test_no_rate_is_printed_for(got: dict[int, list[int]], text: str) -> None:
    check_delivered(WANTED, WANTED)
    with pytest.raises(BenchFailed, match=text):
        check_delivered(WANTED, got)


@pytest.mark.parametrize("batches", [False, True])
def test_the_order_is_checked_by_partition_although_partitions_have_the_same_ids(tmp_path: Path, batches: bool) -> None:
    tally = SpreadTally(5)
    for partition, ids in ((2, [1]), (0, [1, 2]), (2, [2]), (0, [3])):
        push = [Message(number, b"", "", None, partition, "bench") for number in ids]
        if batches:
            tally.batch(push)
        else:
            for message in push:
                tally.message(message)
    assert tally.done.is_set()
    for file, noted in ((tmp_path / "ids", tally.ids), (tmp_path / "partitions", tally.partitions)):
        file.write_bytes(noted.tobytes())
    assert delivered(tmp_path / "ids", tmp_path / "partitions") == WANTED


class Holding:
    """A queue of two partitions, with what they hold."""

    partitions = 2

    def __init__(self, *ids: list[int]) -> None:
        self._ids = ids

    def bounds(self, partition: int) -> PartitionBounds:
        ids = self._ids[partition] or [0]
        return PartitionBounds(
            partition, MessageId(ids[0]), MessageId(ids[-1]), len(self._ids[partition]), bytes=0, epoch=1
        )  # fmt: skip


@pytest.mark.parametrize(
    ("held", "acknowledged", "text"),
    [
        (([1, 2], [1]), {0: [1], 1: [1]}, "3 messages were published and 2 ids acknowledged"),
        (([1, 2], [1]), {0: [1, 1], 1: [1]}, "3 messages were published and 2 ids acknowledged"),
        (([1], [1]), {0: [1, 2], 1: [1]}, "partition 0: 2 messages were acknowledged and 1 are stored"),
        (([1, 2, 3], []), {0: [1, 2, 3][:2], 1: [1]}, "partition 0: 2 messages were acknowledged and 3 are stored"),
        (([1, 2], [2]), {0: [1, 2], 1: [1]}, "partition 1.*not the same"),
        (([1, 2, 3], [1]), {0: [1, 2, 3]}, "partition 1: 0 messages were acknowledged and 1 are stored"),
    ],
    ids=["too few", "one twice", "one lost", "in another partition", "another one", "one too many"],
)
def test_no_rate_is_printed_when_the_partitions_hold_something_else_than_was_acknowledged(
    held: tuple[list[int], list[int]], acknowledged: dict[int, list[int]], text: str
) -> None:
    check_stored(cast("Queue", Holding([1, 2], [7])), {0: [1, 2], 1: [7]}, 3)
    with pytest.raises(BenchFailed, match=text):
        check_stored(cast("Queue", Holding(*held)), acknowledged, 3)


def test_of_a_queue_with_one_partition_ids_are_enough(tmp_path: Path) -> None:
    (tmp_path / "ids").write_bytes(array("q", [5, 4]).tobytes())
    assert delivered(tmp_path / "ids", None) == {0: [5, 4]}


def test_within_a_key_the_order_is_checked_and_between_keys_there_is_none() -> None:
    keys = {(0, 1): 7, (0, 2): 8, (0, 3): 7, (2, 1): 7, (2, 2): 9}
    check_by_key(WANTED, {0: [2, 1, 3], 2: [2, 1]}, keys)
    with pytest.raises(BenchFailed, match="partition 0: messages of one key"):
        check_by_key(WANTED, {0: [3, 1, 2], 2: [1, 2]}, keys)
    with pytest.raises(BenchFailed, match="not the same"):
        check_by_key(WANTED, {0: [1, 2], 2: [1, 2]}, keys)


def test_in_a_storm_a_message_fails_once_and_is_counted_when_it_comes_again() -> None:
    tally = StormTally(2)
    bad = Message(2, b"", FAILING, None, 0, "bench")
    with pytest.raises(NotYet):
        tally.message(bad)
    tally.message(Message(3, b"", "", None, 0, "bench"))
    assert (tally.redelivered, tally.done.is_set()) == (0, False)
    tally.message(bad)
    assert (list(tally.ids), tally.redelivered, tally.done.is_set()) == ([3, 2], 1, True)
    assert tally.first_ns <= tally.last_ns


def test_a_move_is_the_silence_before_the_first_message_at_another_member() -> None:
    handled = [(10, 1, 0), (14, 2, 0), (20, 3, 1), (21, 4, 1), (30, 5, 0)]
    assert moves_of(handled) == [(20, 6), (30, 9)]


# -- the catalogue


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_a_case_declares_is_there(case: Case) -> None:
    module = importlib.import_module(f"delivery.bench.{case.module}")
    assert callable(getattr(module, case.name.replace("-", "_")))
    given = {option for option in case.options if option not in _OF_THE_COMMAND}
    assert given <= set((Setup if case.needs_engine else Plan).__struct_fields__)
    values = {"size": 100, "rate": 5.0, "subscriptions": 8, "per_request": 10, "by": "awaited", "callers": 64,
              "batch": 9, "partitions": 3}  # fmt: skip
    assert case.messages(values) > 0


# -- what is printed


def rated(rate: int, **more: object) -> Result:
    return msgspec.structs.replace(result("live", 100, rate * 2, 2.0, "fsync"), **more)


@pytest.mark.parametrize(
    ("partitions", "processes", "text"),
    [(1, 1, "1 partition, 1 process"), (4, 2, "4 partitions, 2 processes")],
)
def test_the_line_and_the_json_say_how_many_partitions_and_processes(
    partitions: int, processes: int, text: str
) -> None:
    found = rated(500_000, partitions=partitions, processes=processes)
    assert described(found) == f"live 100 B: 500,000 messages/s, 50.0 MB/s (1,000,000 messages, fsync, {text})"
    told = msgspec.json.decode(msgspec.json.encode(found))
    assert (told["partitions"], told["processes"]) == (partitions, processes)


def test_a_case_without_an_engine_has_neither() -> None:
    line = described(result("floor", 8, 1000, 0.5))
    assert line == "floor 8 B: 2,000 messages/s, 0.0 MB/s (1,000 messages, no disk)"


def test_a_line_of_json_has_what_every_case_has_and_of_the_rest_what_there_is() -> None:
    of_all = ["case", "size", "messages", "seconds", "messages_per_second", "megabytes_per_second", "p50_ms", "p99_ms",
              "p999_ms", "durability"]  # fmt: skip
    told = msgspec.json.decode(msgspec.json.encode(result("floor", 8, 1000, 0.5)))
    assert list(told) == of_all
    assert (told["p50_ms"], told["durability"]) == (None, None)
    told = msgspec.json.decode(msgspec.json.encode(rated(100, host_mib=60)))
    assert list(told) == [*of_all, "host_mib"]


def test_how_messages_were_put_and_what_they_cost_is_told() -> None:
    line = described(rated(300, by="put_many of 1,000", host_seconds_per_million=0.25, host_mib=70, batch=10))
    assert line.startswith("live 100 B: 300 messages/s, 0.0 MB/s, host 0.25 s per million, host 70 MiB (")
    assert line.endswith("(600 messages, fsync, by put_many of 1,000, 10 in a batch)")


def test_many_partitions_are_told_beside_one() -> None:
    line = described(rated(300, one_per_second=400.0, ratio_to_one=0.75, partitions=1000, touched=871))
    assert "0.75 of one partition's, 400 messages/s" in line
    assert "1,000 partitions, 871 of them used" in line


def test_a_restart_is_told_by_its_times() -> None:
    runs = [rated(1, ready_ms=ready, empty_ready_ms=500.0, log_mib=1024) for ready in (600.0, 700.0, 500.0)]
    for one in runs:
        one.case = "restart"
    line = described(summary(runs))
    assert line.startswith("median of 3: restart: 600 ms from the start of the host to the first stored message with")
    assert line.endswith("1,024 MiB on the disk, 500 ms with none (lowest 500 ms, highest 700 ms)")


def test_what_was_measured_over_http_is_told() -> None:
    line = described(msgspec.structs.replace(rated(300), case="http-publish", requests_per_second=30.0, connections=2))
    assert line.startswith("http-publish 100 B: 300 messages/s, 0.0 MB/s, 30 requests/s (")
    assert line.endswith("2 connections)")


def test_no_rate_over_http_is_printed_for_polls_that_lost_or_doubled() -> None:
    first, second = Given(b"1", b""), Given(b"2", b"")
    check_ids([first, second], 2)
    for polled in ([first], [first, first], [second, first]):
        with pytest.raises(BenchFailed):
            check_ids(polled, 2)


def test_a_summary_tells_the_median_and_the_extremes_of_the_rates() -> None:
    line = described(summary([rated(rate, partitions=2, processes=2) for rate in (300, 100, 200)]))
    assert line.startswith("median of 3: live 100 B: 200 messages/s")
    assert line.endswith("2 partitions, 2 processes) (lowest 100, highest 300)")


def test_a_summary_of_latencies_tells_their_extremes_too() -> None:
    runs = [rated(100, p50_ms=p50, p99_ms=10 * p50) for p50 in (0.5, 0.7, 0.6)]
    assert described(summary(runs)).endswith("(lowest 100, highest 100; p50 0.5 to 0.7 ms; p99 5 to 7 ms)")


# -- fencing


def test_fencing_times_appends_of_the_log_itself(tmp_path: Path) -> None:
    found = measured(Plan(100, 20, "os"), tmp_path)
    assert None not in (found.append_us, found.unconfirmed_us, found.confirm_us)
    assert found.append_us == pytest.approx((found.unconfirmed_us or 0) + (found.confirm_us or 0), abs=0.002)
    with closing(SegmentedLog(tmp_path)) as log:
        log.open(key := PartitionKey("bench", "fencing", 0), 2, QueueSettings())
        assert log.bounds(key).messages == 20 * 2 + 10, "each with and without, and what went ahead"


def test_fencing_flushes_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[bool] = []
    write = Gauge.write_some

    def noting(self: Gauge, fd: int, parts: Sequence[bytes], offset: int, *, synced: bool = False) -> int:
        flushed.append(synced)
        return write(self, fd, parts, offset, synced=synced)

    monkeypatch.setattr(Gauge, "write_some", noting)
    measured(Plan(100, 3, "os"), tmp_path / "os")
    assert not any(flushed)
    measured(Plan(100, 3), tmp_path / "fsync")
    assert flushed.count(True) == 3 * 2 + 10


def test_the_look_is_taken_behind_each_write_of_every_second_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    current = Epochs.current

    def noting(self: Epochs, partition: int) -> int:
        looks.append(partition)
        return current(self, partition)

    counts = []
    for messages in (1, 10):
        with monkeypatch.context() as patched:
            patched.setattr(Epochs, "current", noting)
            measured(Plan(100, messages), tmp_path / str(messages))
        counts.append(len(looks))
        looks.clear()
    assert counts[1] - counts[0] == (10 - 1) * (1 + 2), "the log's own look in each, one more in every second one"


def test_a_summary_of_fencing_tells_the_extremes_of_the_look() -> None:
    measured = ((20.0, 0.25), (22.0, 0.75), (21.0, 0.5), (30.0, 0.1), (19.0, 0.6))
    runs = [with_fencing(result("fencing", 100, 50, 1.0, "os"), append, look) for append, look in measured]
    line = described(runs[0])
    assert line.startswith("fencing 100 B: an append takes 20.000 µs, 19.750 µs without confirming the epoch")
    assert line.endswith(": 0.250 µs more (50 appends, os)")
    line = described(summary(runs))
    assert line.startswith("median of 5: fencing 100 B: an append takes 21.000 µs, 20.500 µs without")
    assert line.endswith("(lowest look 0.100, highest 0.750)")


# -- bad use


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["live", "--zookeeper", "127.0.0.1:1", "--processes", "2"], "--zookeeper names a running engine"),
        (["live", "--zookeeper", "127.0.0.1:1", "--processes", "1"], "--zookeeper names a running engine"),
        (["live", "--zookeeper", "127.0.0.1:1", "--store", "hbase"], "--store is for its own one"),
        (["live", "--processes", "0"], "--processes"),
        (["latency", "--batches"], "No such option: --batches"),
        (["fencing", "--durability", "memory"], "--durability"),
    ],
)
def test_what_does_not_go_together_is_bad_use(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *arguments]) == 2
    told = capsys.readouterr()
    assert text in told.err
    assert told.out == ""
