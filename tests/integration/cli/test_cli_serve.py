"""`hoot serve` and `hoot zookeeper`: how they start, refuse to start, and stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.integration.cli.calling import call
from tests.integration.cli.running import SECONDS, Child, Hoot, environment, free_ports, taken_port
from tests.integration.embedded import eventually

pytestmark = pytest.mark.integration


def test_without_a_zookeeper_the_error_says_what_to_start() -> None:
    hoot = Hoot(f"127.0.0.1:{free_ports(1)}")
    told = hoot.refused("queue", "list")
    assert (told["error"], told["retryable"]) == ("metadata_unavailable", True)
    assert "hoot serve" in told["message"] + (told["hint"] or "")


@pytest.mark.parametrize("address", ["", " ", "127.0.0.1:0", "127.0.0.1:99999", "nowhere.invalid:2181", "a b:1"])
def test_a_wrong_zookeeper_address_is_told_in_one_line(address: str) -> None:
    done = call(["queue", "list", "--zookeeper", address], b"", environment())
    assert done.status in (1, 2)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


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


@pytest.mark.parametrize("layout", ['{"kind":"hoot-log","version":99}', "nonsense"])
def test_a_data_folder_of_another_version_is_refused_before_anything_is_written_there(
    tmp_path: Path, layout: str
) -> None:
    """An embedded ZooKeeper would begin with files of its own."""
    (tmp_path / "layout.json").write_text(layout)
    shown = Hoot("127.0.0.1:1")("serve", "--embedded", "--data", str(tmp_path), "--log-level", "error", status=1)
    assert shown.stderr.startswith("error: ")
    assert "--data" in shown.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["layout.json"]
    assert (tmp_path / "layout.json").read_text() == layout


def test_bad_settings_of_a_host_are_all_told_before_anything_starts(tmp_path: Path) -> None:
    hoot = Hoot("127.0.0.1:1")
    data = tmp_path / "data"
    start = ["serve", "--data", str(data)]
    shown = hoot(*start, "--session-timeout", "0.1s", "--set", "window_messages=0", status=2).stderr
    assert "session_timeout_seconds" in shown
    assert "window_messages" in shown
    for setting in ("nothing=1", "window_messages", "window_messages=many"):
        assert "error: " in hoot(*start, "--set", setting, status=2).stderr
    for name in ("data", "zookeeper"):
        assert f"give --{name} instead" in hoot(*start, "--set", f"{name}=x", status=2).stderr
    assert "error: " in hoot(*start, "--embedded", "--zookeeper", "127.0.0.1:1", status=2).stderr
    assert not data.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
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


def test_a_second_ctrl_c_ends_a_host_that_waits_for_a_subscriber(tmp_path: Path) -> None:
    with Child("serve", "--embedded", "--data", str(tmp_path / "data"), "--grace", "60s") as host:
        hoot = Hoot(host.says(r"ZooKeeper: (\S+)")[1])
        hoot("queue", "create", "q")
        with Child("subscribe", "q", "--name", "slow", "--format", "body", zookeeper=hoot.zookeeper) as subscriber:
            eventually(lambda: bool(hoot.json("subscription", "list", "q")), "attached", SECONDS)
            hoot("publish", "q", "one")
            subscriber.says("one")
            subscriber.process.send_signal(signal.SIGSTOP)
            hoot("publish", "q", "two")
            host.process.send_signal(signal.SIGINT)
            eventually(lambda: "Ctrl-C" in "".join(host.errors), "stopping", SECONDS)
            assert host.process.poll() is None, "it gives the subscriber its grace"
            assert host.end(signal.SIGINT) == 130
    assert "Traceback" not in "".join(host.errors)


def test_an_embedded_zookeeper_that_crashed_is_started_again(tmp_path: Path) -> None:
    with Child("serve", "--embedded", "--data", str(tmp_path / "data")) as host:
        hoot = Hoot(host.says(r"ZooKeeper: (\S+)")[1])
        hoot("queue", "create", "q")
        pid = int((tmp_path / "data" / "zookeeper" / "zookeeper.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "ended by itself" in "".join(host.errors), "noticed", SECONDS)
        eventually(lambda: listed(hoot, "q"), "started again", SECONDS)
        hoot("publish", "q", "one")
        assert host.end(signal.SIGTERM) == 0, host.errors


def listed(hoot: Hoot, queue: str) -> bool:
    """Whether the queue is listed now; the command fails while ZooKeeper is away for longer than it waits."""
    with contextlib.suppress(AssertionError):
        return queue in hoot("queue", "list").stdout
    return False


def test_an_embedded_zookeeper_by_itself(tmp_path: Path) -> None:
    port = str(free_ports(1))
    with Child("zookeeper", "--data", str(tmp_path), "--port", port) as child:
        child.says(f"listens on 127.0.0.1:{port}")
        assert child.says("HOOT_ZOOKEEPER=(.*)")[1] == f"127.0.0.1:{port}"
        with Child("serve", "--data", str(tmp_path), zookeeper=f"127.0.0.1:{port}") as host:
            host.says("region host")
            assert host.end(signal.SIGTERM) == 0
        assert child.end(signal.SIGINT) == 0
    assert "Traceback" not in "".join(child.errors)
