"""What is under way outlives a ZooKeeper that is away for a while, and nothing else; a host that is too old is told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, cast

import pytest

from delivery.api.reading import LOCATED_MAX
from delivery.client.calls import Calls
from delivery.errors import HootError, InvalidRequest, MetadataUnavailable, ProtocolError
from delivery.metastore.catalog import Catalog
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.idl import load_idl
from delivery.rpc.protocol import decode_call, encode_refusal, encode_result
from delivery.spark import planning
from delivery.spark.options import read_options
from delivery.spark.planning import Engine, engine, patiently, stream_begin
from delivery.spark.ranges import Held, Span

PLACE = ("orders", 0)


class Fails:
    def __init__(self, *errors: HootError) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_what_may_go_away_is_waited_for_and_what_does_not_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PAUSE_SECONDS", 0)
    assert patiently(Fails(*[MetadataUnavailable("away")] * 3), 60) == "done"
    refused = Fails(InvalidRequest("never"), InvalidRequest("never"))
    with pytest.raises(InvalidRequest):
        patiently(refused, 60)
    assert len(refused.errors) == 1


def test_without_patience_there_is_one_attempt() -> None:
    away = Fails(*[MetadataUnavailable("away")] * 2)
    with pytest.raises(MetadataUnavailable):
        patiently(away, 0)
    assert len(away.errors) == 1


class Older(BaseRequestHandler):
    """A region host that knows `partitionInfo` and nothing that came later."""

    def handle(self) -> None:
        buffer = FrameBuffer(1 << 16)
        while count := self.request.recv_into(buffer.space()):
            buffer.received(count)
            while (frame := buffer.next_frame()) is not None:
                call = decode_call("RegionHost", frame)
                info = load_idl("delivery").PartitionInfo(firstId=1, lastId=9, messages=9, bytes=900)
                answer = encode_result(call, info) if call.method == "partitionInfo" else encode_refusal(call)
                self.request.sendall(b"".join(answer[0]))


@pytest.fixture
def older() -> Iterator[tuple[str, int]]:
    with ThreadingTCPServer(("127.0.0.1", 0), Older) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield ("127.0.0.1", server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("start", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_a_stream_that_is_to_begin_somewhere_in_what_it_does_not_read_is_refused(start: str) -> None:
    held = {PLACE: Held(1, 9, 9, 900)}
    for mistyped in ('{"order": {"0": 5}}', '{"orders": {"0": 5, "7": 5}}'):
        with pytest.raises(InvalidRequest, match="which the read does not include"):
            stream_begin(read_options({"queue": "orders", start: mistyped}, stream=True), held)
    named = read_options({"queue": "orders", "startingOffsets": '{"orders": {"0": 5}}'}, stream=True)
    assert stream_begin(named, held) == {PLACE: 4}


def test_a_host_that_is_too_old_is_one_clear_error_before_anything_is_read(older: tuple[str, int]) -> None:
    with engine("nowhere:1", known={PLACE: older}) as hosts:
        assert hosts.owner(PLACE) == older
        assert hosts.held([PLACE]) == {PLACE: Held(1, 9, 9, 900)}, "and ZooKeeper is not asked for it"
        with pytest.raises(ProtocolError, match=r"the peer refused countMessages: .* it is older than this program"):
            hosts.tasks([Span(*PLACE, 0, 9)], 0)


class Full:
    """A host with a partition of 10,000 messages, whose ids are their numbers."""

    def call(self, queue: str, partition: int, method: str, *args: Any, timeout: float) -> Any:
        if method == "countMessages":
            return 10_000
        assert method == "locateMessages"
        counts: list[int] = args[-1]
        assert 1 <= len(counts) <= LOCATED_MAX, "a host refuses more"
        return counts


def alone(calls: object) -> Engine:
    """An engine whose hosts answer so, and that has no ZooKeeper."""
    return Engine(lambda: cast("Catalog", None), cast("Calls", calls), cast("Calls", calls), 0)


def test_a_partition_is_divided_into_more_tasks_than_a_host_answers_for_at_once() -> None:
    tasks = alone(Full()).tasks([Span(*PLACE, 0, 10_000)], 2500)
    assert len(tasks) == 2500
    assert all(one.until == other.after for one, other in pairwise(tasks))
    assert (tasks[0].after, tasks[-1].until, sum(one.messages for one in tasks)) == (0, 10_000, 10_000)
