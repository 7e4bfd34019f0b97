"""The real `hoot` as child processes, against a real region host with its embedded ZooKeeper."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from tests.integration.embedded import ROOT, eventually

pytestmark = pytest.mark.integration

HOOT = [sys.executable, "-m", "delivery.cli"]
SECONDS = 60
BAD_NAMES = ["..", ".", "%2e", "a/b", "a\rb", "a\nb", "", "x" * 10_240, "ü", "-- -"]


def environment(zookeeper: str | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOOT_ZOO")}
    return kept | {"PYTHONPATH": str(ROOT)} | ({"HOOT_ZOOKEEPER": zookeeper} if zookeeper else {})


class Child:
    """A `hoot` that keeps running, with what it says on standard output line by line."""

    def __init__(self, *arguments: str, zookeeper: str | None = None) -> None:
        self.process = subprocess.Popen(
            [*HOOT, *arguments], cwd=ROOT, env=environment(zookeeper), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        lines.extend(iter(stream.readline, ""))

    def says(self, pattern: str) -> re.Match[str]:
        """Wait for a line that matches."""
        found: list[re.Match[str]] = []

        def look() -> bool:
            found.extend(match for line in list(self.lines) if (match := re.search(pattern, line)))
            return bool(found) or self.process.poll() is not None

        eventually(look, pattern, SECONDS)
        assert found, f"{pattern} was never said, but {self.lines} and {self.errors}"
        return found[0]

    def end(self, number: int) -> int:
        """Send a signal and wait for the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(10)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A region host with its embedded ZooKeeper; gives ZooKeeper's address."""
    with Child("serve", "--data", str(tmp_path_factory.mktemp("hoot")), "--log-level", "warning") as child:
        yield child.says(r"ZooKeeper: (\S+)")[1]
        assert child.end(signal.SIGTERM) == 0, child.errors


class Hoot:
    """Runs commands against an engine."""

    def __init__(self, zookeeper: str) -> None:
        self.zookeeper = zookeeper

    def __call__(
        self, *arguments: str | bytes, stdin: str | bytes = b"", status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        run = subprocess.run(
            [*HOOT, *arguments], input=raw, capture_output=True, timeout=SECONDS, cwd=ROOT,
            env=environment(self.zookeeper), check=False,
        )  # fmt: skip
        out, error = (stream.decode(errors="surrogateescape") for stream in (run.stdout, run.stderr))
        assert run.returncode == status, f"{arguments}: {run.returncode}\n{out}\n{error}"
        assert "Traceback" not in error
        return subprocess.CompletedProcess(run.args, run.returncode, out, error)

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin).stdout)

    def refused(self, *arguments: str, status: int = 1, stdin: str | bytes = b"") -> dict[str, Any]:
        """Run what must not succeed; the error as a program sees it, after checking what a person sees."""
        told = self(*arguments, status=status, stdin=stdin)
        assert told.stdout == ""
        lines = told.stderr.splitlines()
        assert lines[0].startswith("error: ")
        assert len(lines) <= 2, lines
        assert all(line.startswith("hint: ") for line in lines[1:]), lines
        failure = self(*arguments, "--json", status=status, stdin=stdin).stderr
        assert failure.count("\n") == 1
        found: dict[str, Any] = json.loads(failure)
        assert set(found) == {"error", "message", "hint", "retryable"}
        assert found["message"] == lines[0].removeprefix("error: ")
        return found


@pytest.fixture
def hoot(engine: str) -> Hoot:
    return Hoot(engine)


@pytest.fixture
def queue(hoot: Hoot, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{request.node.name}")[:200]
    hoot("queue", "create", name, "--partitions", "3")
    return name


# -- queues


def test_a_queue_is_created_listed_shown_changed_and_deleted(hoot: Hoot) -> None:
    hoot("queue", "create", "life", "-n", "2", "--durability", "os", "--ttl", "7d", "--retention", "10MiB")
    [found] = [one for one in hoot.json("queue", "list") if one["queue"] == "life"]
    assert (found["partitions"], found["durability"], found["ttl_seconds"]) == (2, "os", 604_800)
    assert found["retention_bytes"] == 10 << 20
    assert "life" in hoot("queue", "list").stdout

    info = hoot.json("queue", "info", "life")
    assert {name: info[name] for name in found} == found
    assert [one["partition"] for one in info["stored"]] == [0, 1]
    assert "durability" in hoot("queue", "info", "life").stdout

    hoot("queue", "update", "life", "--ttl", "none", "--durability", "fsync")
    changed = hoot.json("queue", "info", "life")
    assert (changed["ttl_seconds"], changed["durability"], changed["retention_bytes"]) == (None, "fsync", 10 << 20)

    hoot("queue", "delete", "life", "--dry-run")
    assert "life" in hoot("queue", "list").stdout, "a dry run does nothing"
    hoot("queue", "delete", "life", "--yes")
    assert hoot.refused("queue", "info", "life")["error"] == "unknown_queue"


def test_deleting_asks_and_without_a_terminal_wants_yes(hoot: Hoot, queue: str) -> None:
    told = hoot.refused("queue", "delete", queue, status=2)
    assert "--yes" in told["message"]
    hoot("queue", "info", queue)


def test_a_queue_is_created_once(hoot: Hoot, queue: str) -> None:
    assert hoot.refused("queue", "create", queue)["error"] == "queue_exists"


def test_an_unknown_queue_brings_near_names(hoot: Hoot) -> None:
    hoot("queue", "create", "flights-of-2013")
    assert "flights-of-2013" in hoot.refused("scan", "flights-of-2031")["message"]
    assert hoot.refused("publish", "flights-of-2031", "x")["error"] == "unknown_queue"


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_bad_names_are_refused_as_bad_use_and_nothing_is_changed(hoot: Hoot, name: str) -> None:
    before = hoot.json("queue", "list")
    for command in (["queue", "create"], ["queue", "info"], ["scan"], ["subscription", "list"]):
        told = (
            hoot.refused(*command, "--", name, status=2)
            if name.startswith("-")
            else hoot.refused(*command, name, status=2)
        )
        assert len(told["message"]) < 400
    hoot("publish", name, "x", status=2)
    hoot("queue", "delete", "--yes", "--", name, status=2)
    assert hoot.json("queue", "list") == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["-n", "0"],
        ["-n", "32768"],
        ["--ttl", "0"],
        ["--retention", "5"],
        ["--body-limit", "1GiB"],
        ["--durability", "no"],
    ],
    ids=" ".join,
)
def test_settings_outside_their_limits_are_bad_use(hoot: Hoot, arguments: list[str]) -> None:
    hoot.refused("queue", "create", "never", *arguments, status=2)
    assert "never" not in [one["queue"] for one in hoot.json("queue", "list")]


# -- publish and scan


def test_arguments_become_messages_and_their_ids_are_printed(hoot: Hoot, queue: str) -> None:
    ids = hoot("publish", queue, "one", "two", "--partition", "1").stdout.split()
    assert hoot("scan", queue, "--format", "{id} {partition} {body}").stdout.splitlines() == [
        f"{ids[0]} 1 one", f"{ids[1]} 1 two"
    ]  # fmt: skip


def test_lines_of_standard_input_become_messages_in_order(hoot: Hoot, queue: str) -> None:
    lines = [f"line {n}" for n in range(5_000)]
    summary = hoot("publish", queue, "--key", "k", stdin="\n".join(lines) + "\n")
    assert "5,000" in summary.stdout
    assert hoot("scan", queue, "--format", "body").stdout.splitlines() == lines


def test_a_dash_means_standard_input_and_the_last_line_needs_no_end(hoot: Hoot, queue: str) -> None:
    told = hoot.json("publish", queue, "-", "--partition", "0", stdin="a\n\nb")
    assert (told["messages"], told["bytes"], told["durability"], told["ids"]) == (3, 2, "fsync", None)
    assert [one["body"] for one in scanned(hoot, queue)] == ["a", "", "b"]


def scanned(hoot: Hoot, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in hoot("scan", *arguments, "--json").stdout.splitlines()]


def test_key_topic_and_headers_come_back(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "x", "--key", "AA", "--topic", "JFK", "--header", "a=1", "--header", "b=ü=2")
    [found] = scanned(hoot, queue)
    assert (found["key"], found["topic"], found["headers"]) == ("AA", "JFK", {"a": "1", "b": "ü=2"})


def test_a_file_is_published_by_lines_or_whole(hoot: Hoot, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "events"
    file.write_bytes(b"one\n\xff\xfe\n")
    hoot("publish", queue, "--file", str(file), "--partition", "0")
    hoot("publish", queue, "--file", str(file), "--whole", "--partition", "1")
    bodies = [one["body"] for one in scanned(hoot, queue, "--partition", "0")]
    assert bodies == ["one", {"base64": "//4="}]
    assert hoot("scan", queue, "-p", "1", "-f", "body").stdout.encode(errors="surrogateescape") == b"one\n\xff\xfe\n\n"


def test_a_file_that_is_not_there_is_told_in_one_line(hoot: Hoot, queue: str, tmp_path: Path) -> None:
    told = hoot.refused("publish", queue, "--file", str(tmp_path / "none"))
    assert told["error"] == "os_error"
    assert "No such file" in told["message"]
    assert scanned(hoot, queue) == []


def test_a_scan_is_cut_by_topic_partition_place_and_limit(hoot: Hoot, queue: str) -> None:
    ids = []
    for number in range(6):
        topic, partition = "ab"[number % 2], str(number % 3)
        ids += hoot("publish", queue, f"m{number}", "--topic", topic, "--partition", partition).stdout.split()

    def bodies(*arguments: str) -> list[str]:
        return hoot("scan", queue, "--format", "body", *arguments).stdout.split()

    assert sorted(bodies()) == [f"m{n}" for n in range(6)]
    assert sorted(bodies("--topic", "a")) == ["m0", "m2", "m4"]
    assert sorted(bodies("--partition", "0-1")) == ["m0", "m1", "m3", "m4"]
    assert sorted(bodies("--from", ids[3])) == ["m3", "m4", "m5"]
    assert sorted(bodies("--to", ids[3])) == ["m0", "m1", "m2"]
    assert sorted(bodies("--from", "-1h")) == [f"m{n}" for n in range(6)]
    assert bodies("--to", "1h ago") == []
    assert bodies("--from", "latest") == []
    assert len(bodies("--limit", "4")) == 4
    assert bodies("--limit", "0") == []


def test_a_scan_that_follows_prints_what_comes_and_ends_with_ctrl_c(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "before")
    with Child("scan", queue, "--follow", "--format", "body", zookeeper=hoot.zookeeper) as child:
        child.says("before")
        hoot("publish", queue, "after")
        child.says("after")
        assert child.end(signal.SIGINT) == 130
        assert child.errors == []


def test_a_scan_whose_reader_goes_away_is_quiet(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, stdin="x\n" * 50_000)
    command = f"{' '.join(HOOT)} scan {queue} --format text | head -n 1; echo ${{PIPESTATUS[0]}}"
    run = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT,
        env=environment(hoot.zookeeper), check=True,
    )  # fmt: skip
    assert run.stdout.splitlines()[-1] == "141"
    assert run.stderr == ""


def test_what_cannot_be_published_is_told_with_how_much_was_stored(hoot: Hoot, queue: str) -> None:
    hoot("queue", "update", queue, "--body-limit", "10")
    told = hoot.refused("publish", queue, "x" * 11, status=2)
    assert told["error"] == "message_too_large"
    assert scanned(hoot, queue) == []


@pytest.mark.parametrize(
    "arguments",
    [["--partition", "3"], ["--topic", ".."], ["--topic", "a\nb"], ["--header", "none"], ["--header", "=x"]],
    ids=repr,
)
def test_a_publish_with_a_wrong_value_is_bad_use_and_stores_nothing(
    hoot: Hoot, queue: str, arguments: list[str]
) -> None:
    hoot.refused("publish", queue, "x", *arguments, status=2)
    assert scanned(hoot, queue) == []


@pytest.mark.parametrize(
    "arguments",
    [["--from", "yesterdayish"], ["--from", "1-99999"], ["--partition", "7"], ["--limit", "-1"], ["--format", "{no}"],
     ["--from", "9999999999999-0"]],
    ids=" ".join,
)  # fmt: skip
def test_a_scan_with_a_wrong_value_is_bad_use(hoot: Hoot, queue: str, arguments: list[str]) -> None:
    hoot.refused("scan", queue, *arguments, status=2)


# -- subscriptions


def test_a_named_subscriber_prints_messages_and_resumes_where_it_stopped(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "one", "two", "--partition", "0")
    subscribe = ["subscribe", queue, "--name", "mine", "--from", "earliest", "--format", "body"]
    assert hoot(*subscribe, "--limit", "2").stdout.split() == ["one", "two"]
    hoot("publish", queue, "three", "--partition", "0")

    info = hoot.json("subscription", "info", queue, "mine")
    assert (info["lag"], info["listener"], info["all_partitions"]) == (1, None, True)
    [first] = [one for one in info["partitions"] if one["partition"] == 0]
    assert first["lag"] == 1
    assert first["lag_seconds"] > 0
    assert first["position"] < first["end"]
    text = hoot("subscription", "info", queue, "mine").stdout
    assert "POSITION" in text
    assert "LAG" in text

    with Child(*subscribe, zookeeper=hoot.zookeeper) as child:
        child.says("three")
        assert child.lines == ["three\n"]
        attached = hoot.json("subscription", "info", queue, "mine")
        assert attached["listener"]
        busy = hoot.refused("subscribe", queue, "--name", "mine", "--limit", "1")
        assert busy["error"] == "subscription_busy"
        assert child.end(signal.SIGINT) == 130
    eventually(lambda: hoot.json("subscription", "info", queue, "mine")["lag"] == 0, "acknowledged", SECONDS)


def test_a_subscriber_without_a_name_leaves_nothing_behind(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "one")
    assert hoot("subscribe", queue, "--from", "earliest", "--limit", "1", "--format", "body").stdout == "one\n"
    with Child("subscribe", queue, "--topic", "wanted", "--format", "body", zookeeper=hoot.zookeeper) as child:
        eventually(lambda: hoot.json("subscription", "list", queue) != [], "attached", SECONDS)
        eventually(lambda: hoot.json("subscription", "list", queue)[0]["listener"], "listening", SECONDS)
        hoot("publish", queue, "no", "--topic", "other")
        hoot("publish", queue, "yes", "--topic", "wanted")
        child.says("yes")
        assert child.lines == ["yes\n"]
        assert child.end(signal.SIGTERM) == 0
    assert hoot.json("subscription", "list", queue) == []


def test_subscriptions_are_listed_and_deleted(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "one")
    hoot("subscribe", queue, "--name", "mine", "--from", "earliest", "--limit", "1")
    for listed in (hoot.json("subscription", "list", queue), hoot.json("subscription", "list")):
        assert ("mine", queue) in [(one["subscription"], one["queue"]) for one in listed]
    assert "mine" in hoot("subscription", "list").stdout
    hoot.refused("subscription", "delete", queue, "mine", status=2)
    hoot("subscription", "delete", queue, "mine", "--dry-run")
    hoot("subscription", "info", queue, "mine")
    hoot("subscription", "delete", queue, "mine", "--yes")
    told = hoot.refused("subscription", "info", queue, "mine")
    assert told["error"] == "unknown_subscription"
    assert hoot.refused("subscription", "delete", queue, "mine", "--yes")["error"] == "unknown_subscription"


def test_hosts_are_listed(hoot: Hoot) -> None:
    [host] = hoot.json("host", "list")
    assert host["address"] == "127.0.0.1"
    assert host["port"] > 0
    assert host["host"] in hoot("host", "list").stdout


# -- starting and stopping


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_without_a_zookeeper_the_error_says_what_to_start() -> None:
    hoot = Hoot(f"127.0.0.1:{free_port()}")
    told = hoot.refused("queue", "list")
    assert (told["error"], told["retryable"]) == ("metadata_unavailable", True)
    shown = hoot("publish", "q", "x", status=1).stderr
    assert "hoot serve" in shown
    assert hoot("--zookeeper", status=2).stderr.startswith("error: ")


@pytest.mark.parametrize("address", ["", " ", "127.0.0.1:0", "127.0.0.1:99999", "nowhere.invalid:2181", "a b:1"])
def test_a_wrong_zookeeper_address_is_told_in_one_line(address: str) -> None:
    run = subprocess.run(
        [*HOOT, "queue", "list", "--zookeeper", address], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT,
        env=environment(), check=False,
    )  # fmt: skip
    assert run.returncode in (1, 2)
    assert run.stderr.startswith("error: ")
    assert "Traceback" not in run.stderr


def test_a_taken_port_ends_the_start(hoot: Hoot, tmp_path: Path) -> None:
    with taken_port() as port:
        for option in ("--port", "--http-port"):
            arguments = ["serve", "--zookeeper", hoot.zookeeper, "--data", str(tmp_path / "data"), option, str(port)]
            told = json.loads(hoot(*arguments, "--log-level", "error", "--json", status=2).stderr)
            assert told["error"] == "bad_use", "serve has no --json"
            shown = hoot(*arguments, "--log-level", "error", status=1)
            assert str(port) in shown.stderr
            assert "error: " in shown.stderr
    with taken_port() as port:
        shown = hoot("zookeeper", "--data", str(tmp_path / "z"), "--port", str(port), status=1)
        assert "error: " in shown.stderr
    assert len(hoot.json("host", "list")) == 1, "a host that could not start is not registered"


@pytest.mark.parametrize("command", [["serve", "--embedded"], ["serve"], ["zookeeper"]], ids=" ".join)
def test_a_data_folder_that_cannot_be_written_ends_the_start(tmp_path: Path, command: list[str], engine: str) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    hoot = Hoot(engine)
    shown = hoot(*command, "--data", str(file), "--log-level", "error", status=1)
    assert shown.stderr.startswith("error: ")
    assert "file" in shown.stderr
    assert file.read_text() == "not a folder"


def test_bad_settings_of_a_host_are_all_told_before_anything_starts(tmp_path: Path) -> None:
    hoot = Hoot("127.0.0.1:1")
    data = tmp_path / "data"
    start = ["serve", "--data", str(data)]
    shown = hoot(*start, "--session-timeout", "0.1s", "--set", "window_messages=0", status=2).stderr
    assert "session_timeout_seconds" in shown
    assert "window_messages" in shown
    for setting in ("nothing=1", "window_messages", "window_messages=many"):
        assert "error: " in hoot(*start, "--set", setting, status=2).stderr
    assert "error: " in hoot(*start, "--embedded", "--zookeeper", "127.0.0.1:1", status=2).stderr
    assert not data.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_host_exits_with_0_and_leaves_no_process(tmp_path: Path, number: int) -> None:
    with Child("serve", "--embedded", "--data", str(tmp_path / "data")) as child:
        zookeeper = child.says(r"ZooKeeper: (\S+)")[1]
        Hoot(zookeeper)("queue", "create", "kept")
        assert child.end(number) == 0, child.errors
    assert "Traceback" not in "".join(child.errors)
    with pytest.raises(OSError, match=r".*"), socket.create_connection(zookeeper.split(":"), 1):  # type: ignore[arg-type]
        pass
    with Child("serve", "--embedded", "--data", str(tmp_path / "data"), "--log-json") as again:
        assert "kept" in Hoot(again.says(r"ZooKeeper: (\S+)")[1])("queue", "list").stdout
        assert again.end(signal.SIGTERM) == 0
        assert {"time", "level", "message"} <= set(json.loads(again.errors[-1]))


def test_a_stop_during_the_start_is_clean(tmp_path: Path) -> None:
    with Child("serve", "--embedded", "--data", str(tmp_path / "data")) as child:
        eventually((tmp_path / "data" / "zookeeper" / "zookeeper.pid").exists, "starting", SECONDS)
        assert child.end(signal.SIGTERM) == 0, child.errors
    assert "Traceback" not in "".join(child.errors)


def test_an_embedded_zookeeper_by_itself(tmp_path: Path) -> None:
    port = str(free_port())
    with Child("zookeeper", "--data", str(tmp_path), "--port", port) as child:
        child.says(f"listens on 127.0.0.1:{port}")
        assert child.says("HOOT_ZOOKEEPER=(.*)")[1] == f"127.0.0.1:{port}"
        with Child("serve", "--data", str(tmp_path), zookeeper=f"127.0.0.1:{port}") as host:
            host.says("region host")
            assert host.end(signal.SIGTERM) == 0
        assert child.end(signal.SIGINT) == 0
    assert "Traceback" not in "".join(child.errors)


# -- the frame of it all


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
    code = "from delivery.cli import main; main(['queue', 'create', 'a\\0b'])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT,
        env=environment(hoot.zookeeper), check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr.startswith("error: ")
    assert "\0" not in run.stderr


def test_help_version_and_completion_answer_without_an_engine() -> None:
    hoot = Hoot("127.0.0.1:1")
    shown = hoot("--help").stdout
    for command in ("serve", "queue", "publish", "scan", "subscribe", "subscription", "host", "zookeeper"):
        assert command in shown
    assert hoot("--version").stdout == hoot("version").stdout
    assert re.match(r"hoot \d", hoot("--version").stdout)
    env = environment() | {"_HOOT_COMPLETE": "complete_bash", "COMP_WORDS": "hoot su", "COMP_CWORD": "1"}
    run = subprocess.run(HOOT, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=env, check=False)
    assert run.stdout.split() == ["subscribe", "subscription"]


def test_help_loads_nothing_slow() -> None:
    """Shell completion and help must answer at once, so neither the client nor trio is imported for them."""
    code = "import sys; from delivery.cli import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment(),
        check=True,
    )  # fmt: skip
    slow = {"kazoo", "trio", "thriftpy2", "hypercorn", "starlette", "pyspark", "pandas", "numpy", "delivery.client"}
    assert slow & set(run.stderr.split()) == set()
