"""The error boundary: one line, a hint, an exit status; never a stack trace for a user's mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import typer
from hypothesis import given, strategies as st

from delivery import errors
from delivery.cli import run
from delivery.cli.confirming import confirm
from delivery.cli.errors import PipeClosed, failure, report


def every_error() -> list[type[errors.HootError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HootError)]
    assert len(found) > 20
    return found


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.code)
def test_every_error_of_hoot_has_its_code_and_one_line(
    kind: type[errors.HootError], capsys: pytest.CaptureFixture[str]
) -> None:
    status = report(kind("it went\nwrong"), as_json=True, debug=False)
    told = json.loads(capsys.readouterr().err)
    assert (told["error"], told["message"], told["retryable"]) == (kind.code, "it went wrong", kind.retryable)
    assert status in (1, 2)
    assert report(kind("it went\nwrong"), as_json=False, debug=False) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "error: it went wrong"
    assert [line.startswith("hint: ") for line in err.splitlines()[1:]] in ([], [True])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidRequest("x"), 2), (errors.MessageTooLarge("x"), 2), (errors.UnknownPartition("x"), 2),
        (errors.ConfigError("x"), 2), (typer.BadParameter("x"), 2), (errors.UnknownQueue("x"), 1),
        (errors.MetadataUnavailable("x"), 1), (errors.Closed("x"), 1), (OSError("x"), 1), (ValueError("x"), 1),
        (KeyboardInterrupt(), 130), (PipeClosed(), 141),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_the_exit_status_tells_bad_use_from_failure(
    error: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, as_json=False, debug=False) == status
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), PipeClosed()], ids=repr)
def test_ctrl_c_and_a_closed_pipe_are_quiet(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    report(error, as_json=False, debug=True)
    assert capsys.readouterr() == ("", "")


def test_of_a_group_the_telling_member_is_told() -> None:
    """trio's nurseries raise groups, also nested ones."""
    inner = ExceptionGroup("", [ValueError("noise"), errors.PortInUse("port 80 is taken")])
    assert failure(ExceptionGroup("", [RuntimeError("noise"), inner])).code == "port_in_use"
    assert report(BaseExceptionGroup("", [KeyboardInterrupt()]), as_json=False, debug=False) == 130


def test_a_file_that_cannot_be_read_is_named() -> None:
    told = failure(FileNotFoundError(2, "No such file or directory", "events.txt"))
    assert (told.code, told.message) == ("os_error", "events.txt: No such file or directory")


def test_a_message_that_names_a_command_needs_no_hint() -> None:
    assert failure(errors.UnknownQueue("no queue 'x': create it with `hoot queue create x`")).hint is None
    assert failure(errors.UnknownQueue("no queue 'x'")).hint is not None


def test_every_command_that_a_hint_names_exists() -> None:
    from typer.main import get_command

    from delivery.cli import app
    from delivery.cli.errors import _HINTS

    root: Any = get_command(app)
    for words in re.findall(r"`hoot ([a-z ]+)", " ".join(_HINTS.values())):
        command = root
        for word in words.split():
            command = command.get_command(None, word)
            assert command is not None, words


@given(st.text())
def test_no_text_breaks_the_line_or_steers_the_terminal(text: str) -> None:
    assert all(character.isprintable() for character in failure(errors.HootError(text)).message)


def test_an_unexpected_error_is_short_and_debug_shows_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ZeroDivisionError("by zero")

    for debug in (False, True):
        with pytest.raises(ZeroDivisionError) as caught:
            fail()
        assert report(caught.value, as_json=False, debug=debug) == 1
        told = capsys.readouterr().err
        assert "error: ZeroDivisionError: by zero" in told
        assert ("Traceback" in told) is debug
        assert "--debug" in told


@pytest.mark.parametrize("arguments", [["nothing"], ["queue"], ["scan"], ["queue", "list", "--nope"]], ids=" ".join)
def test_a_wrong_command_line_is_bad_use_in_both_forms(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert re.fullmatch(r"error: .+\nhint: `hoot.* --help` explains it\n", capsys.readouterr().err)
    assert run([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"] == "bad_use"


def test_json_behind_a_double_dash_is_a_message_and_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["queue", "create", "--", "..", "--json"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_wrong_value_names_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--from", "soon"), ("--to", "soon"), ("--partition", "x"), ("--limit", "-1")):
        assert run(["scan", "q", option, value]) == 2
        assert option in capsys.readouterr().err


def test_the_command_alone_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage" in capsys.readouterr().out


def test_a_deletion_without_a_terminal_wants_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("delete it", yes=True)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(typer.BadParameter, match="--yes"):
        confirm("delete it", yes=False)


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_deletion_on_a_terminal_asks(answer: str, agreed: bool) -> None:
    code = "from delivery.cli.confirming import confirm; confirm('delete it', yes=False); print('done')"
    leader, follower = os.openpty()
    try:
        os.write(leader, answer.encode())
        process = subprocess.run(
            [sys.executable, "-c", code], stdin=follower, capture_output=True, text=True, timeout=30, check=False
        )
    finally:
        os.close(leader)
        os.close(follower)
    assert "Delete it?" in process.stderr
    assert ("done" in process.stdout) is agreed
