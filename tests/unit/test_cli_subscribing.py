"""The listener of `hoot subscribe`: what it printed is handled, and nothing else is."""

from __future__ import annotations

import io
import sys

import pytest

from delivery.cli.formats import Printer
from delivery.cli.subscribing import Enough, PrintingListener, _passing_name
from delivery.model import Message, check_name


def message(body: bytes) -> Message:
    return Message(1, body, "", None, 0, "q")


def test_what_is_printed_is_handed_over_with_each_push(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    listener = PrintingListener(Printer("body"), None)
    listener.take(message(b"one"))
    listener.take(message(b"two"))
    listener.flush([])
    assert capsysbinary.readouterr().out == b"one\ntwo\n"
    assert not listener.done.is_set()


def test_messages_behind_the_limit_are_not_handled(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """They stay in the queue for the next subscriber of that name."""
    listener = PrintingListener(Printer("body"), 2)
    listener.take(message(b"one"))
    listener.take(message(b"two"))
    assert listener.done.is_set()
    for body in (b"three", b"three"):
        with pytest.raises(Enough):
            listener.take(message(body))
    assert capsysbinary.readouterr().out == b"one\ntwo\n"


class Broken(io.BytesIO):
    """A pipe whose reader went away, or a disk that is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, data: object) -> int:
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device")], ids=repr)
def test_a_message_that_could_not_be_printed_is_not_handled(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        buffer = Broken(error)

        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Stream())
    listener = PrintingListener(Printer("body"), None)
    with pytest.raises(type(error)):
        listener.take(message(b"one"))
    assert listener.done.is_set()
    assert listener.failure is error
    with pytest.raises(Enough):
        listener.take(message(b"one"))


def test_a_passing_name_is_a_name_and_another_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "Mrs. Ü/..")
    names = {_passing_name() for _ in range(10)}
    assert len(names) == 10
    assert all(check_name("subscription", name).startswith("cli-Mrs-") for name in names)

    def nobody() -> str:
        raise KeyError("uid 10001")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert _passing_name().startswith("cli-user-")
