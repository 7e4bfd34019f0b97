"""Looks at many partitions: who does not answer is waited for once, and what cannot be opened not for ever."""

from __future__ import annotations

from typing import Any, cast

import pytest

from delivery.client import looks as module
from delivery.client.calls import Calls
from delivery.client.hosts import Owners
from delivery.client.looking import check_passing
from delivery.client.looks import LEAST_SECONDS, LOOK_SECONDS, Looks
from delivery.errors import (
    DeadlineExceeded,
    HootError,
    HostUnreachable,
    InvalidRequest,
    MessagesGone,
    MetadataUnavailable,
    NoHost,
    StorageUnavailable,
    WrongStore,
)
from delivery.metastore.live import Address
from delivery.metastore.records import HostRecord


class Cluster:
    """Partitions of hosts 0 to 9, in turn; what each host answers, and how long it was waited for, by a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[int, HootError] = {}
        self.waited: list[float] = []
        self.now = 0.0
        self.hosts = True
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        self.looks = Looks(cast("Calls", self), cast("Owners", self))

        self.moved: set[int] = set()
        """Partitions that host 9 has by now."""

    def address(self, queue: str, partition: int) -> Address:
        if not self.hosts:
            raise NoHost("nobody is there")
        return ("host", 9 if partition in self.moved else partition % 10)

    def call(self, queue: str, partition: int, method: str, *args: object, timeout: float) -> int:
        error = self.errors.get(partition % 10) if self.hosts else NoHost("nobody is there")
        if error is None:
            return partition
        self.waited.append(timeout)
        self.now += timeout
        self.moved.add(partition)
        raise error

    def ask(self, host: HostRecord, method: str, *args: object, timeout: float) -> int:
        return self.call("q", host.port, method, timeout=timeout)

    def answers(self, partitions: int = 1000) -> list[object]:
        """What a look at each partition gives, or the code of its error."""
        return [self.answer(partition) for partition in range(partitions)]

    def answer(self, partition: int) -> object:
        try:
            return self.looks.call("q", partition, "partitionInfo")
        except HootError as error:
            return error.code


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


@pytest.mark.parametrize("error", [HostUnreachable("gone"), DeadlineExceeded("late")], ids=lambda error: error.code)
def test_a_host_that_is_silent_is_waited_for_once_and_the_others_answer(cluster: Cluster, error: HootError) -> None:
    cluster.errors[3] = error
    found = cluster.answers()
    assert found == [error.code if partition % 10 == 3 else partition for partition in range(1000)]
    assert cluster.waited == [LOOK_SECONDS]


def test_without_any_host_or_zookeeper_one_partition_is_waited_for(cluster: Cluster) -> None:
    cluster.hosts = False
    assert set(cluster.answers()) == {"no_host"}
    assert cluster.waited == [LOOK_SECONDS]


def test_partitions_that_cannot_be_opened_are_waited_for_together(cluster: Cluster) -> None:
    cluster.errors[3] = StorageUnavailable("its disk is full")
    found = cluster.answers()
    assert found == ["storage_unavailable" if number % 10 == 3 else number for number in range(1000)]
    assert cluster.waited == [LOOK_SECONDS] + [LEAST_SECONDS] * 99, "each is asked: another may be served"


def test_a_host_that_tells_nothing_is_asked_once_and_may_serve_its_partitions(cluster: Cluster) -> None:
    cluster.errors[3] = HostUnreachable("gone")
    for _ in range(3):
        with pytest.raises(HostUnreachable):
            cluster.looks.ask(host(3), "observe")
    assert cluster.waited == [LOOK_SECONDS]
    assert cluster.looks.ask(host(4), "observe") == 4
    del cluster.errors[3]
    assert cluster.answer(3) == 3


def test_an_error_is_a_fresh_one_each_time(cluster: Cluster) -> None:
    """Threads that raise one instance would gather their tracebacks in it."""
    cluster.errors[3] = MetadataUnavailable("no answer")
    raised: list[Any] = []
    for partition in (3, 13):
        with pytest.raises(MetadataUnavailable) as caught:
            cluster.looks.call("q", partition, "partitionInfo")
        raised.append(caught.value)
    assert raised[0] is not raised[1]


def host(port: int) -> HostRecord:
    return HostRecord("h", "host", port, None, 1, "1", 0)


@pytest.mark.parametrize("kind", [StorageUnavailable, MessagesGone, WrongStore])
def test_what_keeps_one_partition_from_being_opened_is_no_matter_of_the_others(kind: type[HootError]) -> None:
    check_passing(kind("the table is gone"))
    with pytest.raises(InvalidRequest):
        check_passing(InvalidRequest("no such subscription"))
