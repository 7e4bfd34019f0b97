"""The frame of all commands: bad use, help, version, completion, and how soon they answer."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

import pytest

from delivery import Client
from tests.integration.cli.calling import call
from tests.integration.cli.running import HOOT, SECONDS, Hoot, environment, run
from tests.integration.embedded import ROOT

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "arguments",
    [["nothing"], ["queue"], ["queue", "lst"], ["scan"], ["publish"], ["queue", "list", "--nope"], ["queue", "create"],
     ["serve", "--port", "70000"], ["serve", "--log-level", "loud"], ["publish", "q", "x", "--file", "y"],
     ["publish", "q", "--whole", "x"]],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_command_line_is_bad_use(arguments: Sequence[str]) -> None:
    shown = Hoot("127.0.0.1:1")(*arguments, status=2).stderr
    assert shown.startswith("error: ")
    assert "hint: " in shown


def test_a_nul_in_a_name_from_a_program_is_refused(hoot: Hoot) -> None:
    """No argument list can hold a NUL, so this one comes through the entry point."""
    told = hoot("queue", "create", "a\0b", status=2).stderr
    assert told.startswith("error: ")
    assert "\0" not in told


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--help"], 0), (["queue", "list", "--json"], 0), (["scan", "{queue}", "--format", "body"], 0),
     (["publish", "{queue}", "--partition", "0", "--ids", "--json"], 2), (["queue", "info", "none"], 1),
     (["queue", "lst"], 2)],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_a_command_that_a_test_calls_does_what_it_does_in_a_process(
    client: Client, hoot: Hoot, queue: str, arguments: list[str], status: int
) -> None:
    """Most tests call commands, for a process takes half a second to begin."""
    client.queue(queue).put(b"\xff\xc3\xbc\n", partition=1)
    given, too_long = [one.format(queue=queue) for one in arguments], b"\xffa\nb\n" + b"x" * (2 << 20)
    outcomes = {way(given, too_long, environment(hoot.zookeeper)) for way in (run, call)}
    assert [one.status for one in outcomes] == [status]


def test_help_version_and_completion_answer_without_an_engine() -> None:
    hoot = Hoot("127.0.0.1:1")
    shown = hoot("--help").stdout
    commands = "serve queue publish scan subscribe subscription host zookeeper transaction spark bench demo"
    for command in commands.split():
        assert re.search(rf"^│ {command} ", shown, re.MULTILINE), command
    assert hoot("--version").stdout == hoot("version").stdout
    assert re.match(r"hoot \d", hoot("--version").stdout)
    env = environment() | {"_HOOT_COMPLETE": "complete_bash", "COMP_WORDS": "hoot su", "COMP_CWORD": "1"}
    done = subprocess.run(HOOT, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=env, check=False)
    assert done.stdout.split() == ["subscribe", "subscription"]


@pytest.mark.parametrize(
    ("shell", "words", "found"),
    [("bash", "hoot queue ", "create list info update delete purge copy"), ("bash", "hoot scan q --is", "--isolation"),
     ("zsh", "hoot que", "queue"), ("fish", "hoot bench flo", "floor")],
)  # fmt: skip
def test_commands_and_options_are_completed_in_every_shell(shell: str, words: str, found: str) -> None:
    asked = {
        "_HOOT_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
        "_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    done = subprocess.run(
        HOOT, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment() | asked, check=True
    )
    assert set(found.split()) <= set(re.findall(r"[\w-]+", done.stdout))


def imported_by(*arguments: str, zookeeper: str | None = None) -> set[str]:
    code = f"import sys; from delivery.cli import run; run({arguments!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT,
        env=environment(zookeeper), check=True,
    )  # fmt: skip
    return set(done.stderr.split())


def test_help_loads_nothing_slow() -> None:
    """Shell completion and help must answer at once, so neither the client nor trio is imported for them."""
    slow = {"kazoo", "trio", "thriftpy2", "starlette", "pyspark", "pandas", "numpy", "delivery.client"}
    assert slow & imported_by("--help") == set()


def test_a_command_loads_no_other_and_parses_no_idl_that_it_does_not_need(hoot: Hoot) -> None:
    found = imported_by("queue", "list", zookeeper=hoot.zookeeper)
    assert {"kazoo", "delivery.client", "delivery.cli.queues"} <= found
    others = {"delivery.cli.serve", "delivery.cli.messages", "delivery.cli.subscriptions"}
    assert (others | {"trio", "starlette", "pydantic", "hoot_delivery_thrift"}) & found == set()


def in_shell(command: str, zookeeper: str) -> subprocess.CompletedProcess[str]:
    """A command line of bash, with `hoot` for the command."""
    text = re.sub(r"\bhoot\b", shlex.join(HOOT), command)
    return subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment(zookeeper),
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"], ids=["in", "out", "error", "all"])
def test_standard_streams_may_be_closed(client: Client, hoot: Hoot, queue: str, closed: str) -> None:
    """Nothing that is opened later gets their numbers: what is printed would go to ZooKeeper."""
    done = in_shell(f"hoot publish {queue} one {closed} && hoot scan {queue} {closed}", hoot.zookeeper)
    assert (done.returncode, done.stderr) == (0, "")
    assert client.queue(queue).count(0, 0) + client.queue(queue).count(1, 0) + client.queue(queue).count(2, 0) == 1
    assert in_shell(f"hoot publish {queue} {closed}", hoot.zookeeper).returncode == 0, "no lines, no messages"
    assert in_shell(f"hoot queue delete {queue} {closed}", hoot.zookeeper).returncode == 2, "nobody can be asked"


@pytest.mark.parametrize("command", ["--help", "queue list", "scan {queue}", "publish {queue} x"])
def test_output_that_cannot_be_written_is_one_line(client: Client, hoot: Hoot, queue: str, command: str) -> None:
    client.queue(queue).put(b"one")
    done = in_shell(f"hoot {command.format(queue=queue)} > /dev/full", hoot.zookeeper)
    assert done.returncode == 1
    assert re.fullmatch(r"error: (standard output: )?No space left on device\n", done.stderr)
    told = json.loads(in_shell("hoot queue list --json > /dev/full", hoot.zookeeper).stderr)
    assert (told["error"], told["message"]) == ("os_error", "No space left on device")
