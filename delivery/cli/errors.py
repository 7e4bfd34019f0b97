"""The error boundary of the command line: what a person or a program sees when a command does not succeed.

Exit status: 0 fine; 1 failed (also: not found, not reachable, refused); 2 bad use (the command line or a value in it);
130 interrupted with Ctrl-C; 141 when the reader of a pipe went away, as for any program that SIGPIPE ends.

On standard error there is one line `error: …` and, where there is something to do, one line `hint: …`. With `--json`
it is one JSON object in one line, also on standard error, so that standard output holds data and nothing else:
`{"error": code, "message": text, "hint": text or null, "retryable": bool}`. The codes are those of `delivery.errors`,
and `bad_use`, `os_error` and `internal_error`.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import NamedTuple

import typer

from delivery.cli.streams import silence_output
from delivery.errors import HootError

FAILED = 1
BAD_USE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
LINE_MAX = 2000
"""Characters of a message that are told: a name in it may be of any length."""

USAGE_ERROR: type[BaseException] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""The base of what typer raises for a wrong command line; typer itself does not export it by name."""

_BAD_VALUES = frozenset({"invalid_request", "message_too_large", "unknown_partition", "bad_config"})

_HINTS = {
    "metadata_unavailable": "start one with `hoot serve`, which brings its own ZooKeeper, or name yours with"
    " --zookeeper HOST:PORT or the environment variable HOOT_ZOOKEEPER",
    "no_host": "start one with `hoot serve` (with the same --zookeeper, if you use one of your own)",
    "host_unreachable": "`hoot host list` shows the hosts that are registered; is one of them stopping or cut off?",
    "unknown_queue": "`hoot queue list` shows the queues, `hoot queue create NAME` makes one",
    "queue_exists": "`hoot queue info NAME` shows it, `hoot queue update NAME` changes its settings",
    "queue_closed": "publish to the queue that it was copied to, or open it again with `hoot queue update NAME --open`",
    "unknown_partition": "`hoot queue info NAME` shows the partitions",
    "unknown_subscription": "`hoot subscription list` shows the subscriptions",
    "subscription_exists": "`hoot subscription info QUEUE NAME` shows it",
    "unknown_snapshot": "`hoot subscription snapshot list QUEUE NAME` shows them",
    "snapshot_exists": "take another name, or delete it with `hoot subscription snapshot delete QUEUE NAME SNAPSHOT`",
    "unknown_transaction": "`hoot transaction list` shows those that are in progress or invalid",
    "unknown_host": "`hoot host list` shows the live ones",
    "host_draining": "name another host, or end its draining with `hoot host drain HOST --undo`",
    "group_mismatch": "ask for what the other members have, or leave the options out",
    "subscription_busy": "stop the other subscriber, take another --name, or take this one over with --force",
    "unknown_outcome": "the messages may be stored; scan the queue before publishing them again",
    "deadline_exceeded": "try again; if it lasts, look at the log and /readyz of the region host",
    "throttled": "try again after a pause",
    "storage_unavailable": "look at the log of the region host: its disk may be full or failing, or HBase out of reach",
    "clock_wrong": "set the clock of the region host's machine right, or move the partition to a host with a right one",
    "corrupt_record": "do not delete anything; the log of the region host names the file",
    "messages_gone": "bring back what was there, or delete the queue; the log of the region host says more",
    "archive_unreadable": "`hoot queue info NAME` shows the archive's folder, which hosts need under that very path",
    "layout_mismatch": "the data was written by another version of Hoot: use that one, or another --data folder",
    "data_folder": "choose another folder with --data",
    "port_in_use": "choose another port, or 0 to get a free one",
}


class PipeClosed(Exception):
    """The program that reads standard output went away: nothing more is worth writing."""


class Failure(NamedTuple):
    """What is told of an error. Its fields but the last are those of the JSON form."""

    code: str
    message: str
    hint: str | None
    retryable: bool
    status: int


def cause(error: BaseException) -> BaseException:
    """The error to tell of: of a group (trio's nurseries make them) its most telling member, in depth."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    members = [cause(member) for member in error.exceptions]
    known = [m for m in members if isinstance(m, HootError | OSError | KeyboardInterrupt)]
    return (known or members)[0]


def failure(error: BaseException) -> Failure:
    """What to tell of an error that ended a command."""
    error = cause(error)
    if isinstance(error, HootError):
        status = BAD_USE if error.code in _BAD_VALUES else FAILED
        # Where the text names a command already, a second piece of advice would only blur it.
        hint = None if "`hoot " in error.message else _HINTS.get(error.code)
        return Failure(error.code, _one_line(error.message), hint, error.retryable, status)
    if isinstance(error, USAGE_ERROR):
        return _usage(error)
    if isinstance(error, OSError):
        why = error.strerror or str(error)
        text = f"{error.filename}: {why}" if error.filename else why
        return Failure("os_error", _one_line(text), None, False, FAILED)
    text = f"{type(error).__name__}: {error}"
    hint = "this is a fault in Hoot; `hoot --debug …` shows where it happened"
    return Failure("internal_error", _one_line(text), hint, False, FAILED)


def _usage(error: BaseException) -> Failure:
    format_message = getattr(error, "format_message", error.__str__)
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "hoot"
    return Failure("bad_use", _one_line(format_message()), f"`{path} --help` explains it", False, BAD_USE)


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Tell of `error` on standard error; the exit status. Ctrl-C and a closed pipe are quiet."""
    found = cause(error)
    if isinstance(found, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(found, PipeClosed):
        silence_output()
        return PIPE_CLOSED
    told = failure(found)
    if debug:
        traceback.print_exception(error)
    if as_json:
        fields = {"error": told.code, "message": told.message, "hint": told.hint, "retryable": told.retryable}
        print(json.dumps(fields, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"error: {told.message}", file=sys.stderr)
        if told.hint:
            print(f"hint: {told.hint}", file=sys.stderr)
    return told.status


def _one_line(text: str) -> str:
    """`text` without line breaks and control characters, which a name given by a user may hold."""
    line = " ".join(text.split())
    if len(line) > LINE_MAX:
        line = f"{line[: LINE_MAX // 2]} … {line[-LINE_MAX // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
