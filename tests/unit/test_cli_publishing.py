"""`hoot publish` against a client that fails in the middle: what was stored is told, and nothing piles up."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import pytest

from delivery.cli import publishing, run
from delivery.client import PublishedMessage
from delivery.errors import HootError, StorageUnavailable, UnknownOutcome, UnknownQueue
from delivery.ids import MessageId


class FakeReceipt:
    def __init__(self, number: int, error: HootError | None) -> None:
        self.number, self.error = number, error
        self.asked = False

    def result(self, timeout: float | None = None) -> PublishedMessage:
        self.asked = True
        if self.error is not None:
            raise self.error
        return PublishedMessage(MessageId(self.number), 0, "fsync")


class FakeClient:
    """Client, queue and publisher in one: stores in a list, and fails where it is told to."""

    def __init__(self, fail_at: int | None = None, error: HootError | None = None) -> None:
        self.fail_at, self.error = fail_at, error
        self.put_with: list[tuple[bytes, dict[str, Any]]] = []
        self.receipts: list[FakeReceipt] = []
        self.unasked_max = 0
        self.closed = 0

    def queue(self, name: str) -> Self:
        if name == "none":
            raise UnknownQueue("no queue 'none'")
        return self

    def publisher(self, timeout: float) -> Self:
        self.timeout = timeout
        return self

    def put(self, body: bytes, **how: Any) -> FakeReceipt:
        number = len(self.receipts)
        self.put_with.append((body, how))
        self.receipts.append(FakeReceipt(number, self.error if number == self.fail_at else None))
        self.unasked_max = max(self.unasked_max, sum(not one.asked for one in self.receipts[-200:]))
        return self.receipts[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed += 1


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    return connected(monkeypatch, FakeClient())


def connected(monkeypatch: pytest.MonkeyPatch, fake: FakeClient) -> FakeClient:
    monkeypatch.setattr("delivery.client.connect", lambda zookeeper: fake)
    return fake


def test_what_is_given_reaches_the_publisher(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--key", "k", "--topic", "t", "--header", "a=1", "--partition", "2"]
    assert run(["publish", "q", "one", "two", *options, "--timeout", "1m"]) == 0
    assert client.timeout == 60
    how = {"key": b"k", "topic": "t", "headers": {"a": b"1"}, "partition": 2}
    assert client.put_with == [(b"one", how), (b"two", how)]
    assert capsys.readouterr().out == "0-0\n0-1\n"
    assert client.closed == 2, "publisher and client"


def test_without_options_nothing_is_set(client: FakeClient) -> None:
    assert run(["publish", "q", "one"]) == 0
    assert client.put_with == [(b"one", {"key": None, "topic": "", "headers": None, "partition": None})]


def test_messages_are_repeated_and_summed_up_as_json(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["publish", "q", "abc", "--repeat", "5", "--no-ids", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("seconds") >= 0
    assert told == {"queue": "q", "messages": 5, "bytes": 15, "durability": "fsync", "ids": None}
    assert run(["publish", "q", "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ids"] == [{"partition": 0, "id": "0-5"}]


@pytest.mark.parametrize("error", [StorageUnavailable("disk full"), UnknownOutcome("no answer")], ids=repr)
def test_a_failure_in_the_middle_tells_how_much_was_stored(
    error: HootError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = connected(monkeypatch, FakeClient(3, error))
    assert run(["publish", "q", "x", "--repeat", "10", "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    told = json.loads(err)
    assert told["error"] == error.code
    assert told["message"] == f"{error.message} (3 messages before it were stored)"
    assert fake.closed == 2


def test_receipts_do_not_pile_up(monkeypatch: pytest.MonkeyPatch, client: FakeClient) -> None:
    monkeypatch.setattr(publishing, "RECEIPTS_MAX", 100)
    assert run(["publish", "q", "x", "--repeat", "1000", "--no-ids"]) == 0
    assert client.unasked_max <= 100
    assert all(receipt.asked for receipt in client.receipts)


def test_a_queue_that_is_not_there_ends_before_anything_is_published(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["publish", "none", "x"]) == 1
    assert capsys.readouterr().err.startswith("error: no queue 'none'\nhint: ")
    assert client.put_with == []
