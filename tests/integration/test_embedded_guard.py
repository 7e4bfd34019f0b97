"""The embedded ZooKeeper ends with its host, however that ends, and not before; real processes, really killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery.embedded import EmbeddedZooKeeper, find_java, guard, ports as ports_module
from delivery.embedded.folder import DataFolder
from delivery.embedded.server import command, config_text, environment, zookeeper_jars
from delivery.errors import DataFolderError
from tests.integration.embedded import NEVER, client, eventually, host, pid_of, running

pytestmark = pytest.mark.integration


def test_it_ends_when_its_host_is_killed(tmp_path: Path) -> None:
    with host(tmp_path) as (process, pid, guard, _address):
        assert running(pid)
        process.send_signal(signal.SIGKILL)
        eventually(lambda: not running(pid), "ZooKeeper has ended with its host")
        eventually(lambda: not running(guard), "so has the guard")
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.alive, "the folder is free at once"


def test_it_ends_with_its_host_although_the_thread_that_started_it_is_long_gone_but_not_before(tmp_path: Path) -> None:
    start = "t = threading.Thread(target=server.start); t.start(); t.join()"
    with host(tmp_path, start) as (process, pid, _guard, address):
        with client(address) as zookeeper:
            assert zookeeper.exists("/zookeeper")
        process.send_signal(signal.SIGKILL)
        eventually(lambda: not running(pid), "ZooKeeper has ended with its host")


def test_it_ends_with_its_host_although_a_forked_child_of_the_host_lives_on(tmp_path: Path) -> None:
    """The child holds the host's end of the pipe, so there is no end of file; the change of parent tells."""
    start = "import os; server.start()\nif os.fork() == 0:\n    threading.Event().wait()"
    with host(tmp_path, start) as (process, pid, _guard, _address):
        process.send_signal(signal.SIGKILL)
        eventually(lambda: not running(pid), "ZooKeeper has ended with its host")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_stop_works_although_a_forked_child_of_the_host_lives_on(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        child = multiprocessing.get_context("fork").Process(target=NEVER.wait)
        child.start()
        pid = pid_of(server)
        server.stop()
        assert not running(pid)
        child.kill()
        child.join()


def test_it_ends_when_its_guard_is_killed_and_starts_again(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        pid = pid_of(server)
        assert server._guard is not None
        os.kill(server._guard.pid, signal.SIGKILL)
        eventually(lambda: not running(pid), "the kernel ends ZooKeeper with its guard")
        assert not server.alive
        server.start()
        assert server.alive


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_meant_for_the_whole_service_do_not_take_it_away(tmp_path: Path, number: signal.Signals) -> None:
    """The host has checkpoints to write into it before it ends."""
    with host(tmp_path) as (process, pid, guard, address):
        assert os.getpgid(pid) == os.getpgid(guard) != os.getpgid(process.pid), "Ctrl-C does not reach it"
        os.kill(guard, number)
        os.kill(pid, number)
        with client(address) as zookeeper:
            zookeeper.create("/checkpoint", b"")
        assert running(guard)
        process.kill()
        eventually(lambda: not running(pid), "it ends with its host all the same")


def test_a_server_left_behind_in_the_folder_is_ended_by_the_next_start(tmp_path: Path) -> None:
    """Where the kernel does not end ZooKeeper with its guard, it runs on, holding the lock of the data."""
    folder = DataFolder(tmp_path)
    folder.prepare()
    port = ports_module.free_port(None)
    folder.write_config(config_text(port))
    locks = folder.lock()
    arguments = command(find_java(), zookeeper_jars(), 64, folder.marker)
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=environment(), pass_fds=[locks.server], stderr=subprocess.DEVNULL
    ) as orphan:
        locks.close()
        try:
            eventually(lambda: ports_module.answers(port, folder.data), "the orphan serves", 30)
            folder.pid_file.write_text(f"{os.getpid()}\n")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("delivery.embedded.folder.ORPHAN_SECONDS", 0.2)
                with pytest.raises(DataFolderError, match="end it by hand"):
                    EmbeddedZooKeeper(tmp_path).start()
            assert orphan.poll() is None, "a process id that is not its own is left in peace"

            folder.pid_file.write_text(f"{orphan.pid}\n")
            with EmbeddedZooKeeper(tmp_path) as server:
                assert server.alive
                assert orphan.wait(10) == -signal.SIGKILL
        finally:
            orphan.kill()


@contextlib.contextmanager
def guarded(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The guard over another program than ZooKeeper, with its files in the folder."""
    with (folder / "log").open("ab") as log, (folder / "lock").open("w") as lock:
        places = [str(os.getpid()), str(lock.fileno()), str(folder / "pid"), str(folder / "log")]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, *places, *arguments],
            pass_fds=[lock.fileno()], stdin=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    with process:
        yield process


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)])
def test_the_guard_ends_as_its_program_ended(tmp_path: Path, script: str, status: int) -> None:
    with guarded(tmp_path, "/bin/sh", "-c", script) as process:
        assert process.wait(10) == status
    assert not (tmp_path / "pid").exists()


def test_a_program_that_cannot_be_run_is_told_in_the_log(tmp_path: Path) -> None:
    with guarded(tmp_path, str(tmp_path / "java")) as process:
        assert process.wait(10) == 127
    assert (tmp_path / "log").read_text() == f"cannot run {tmp_path / 'java'}: No such file or directory\n"


def test_a_log_that_grows_too_long_is_moved_away(tmp_path: Path) -> None:
    script = f"import sys, time; sys.stderr.write('.' * {guard.LOG_BYTES_MAX + 1}); time.sleep(100)"
    with guarded(tmp_path, sys.executable, "-c", script):
        eventually((tmp_path / "log.1").exists, "the log is moved")
        eventually(lambda: (tmp_path / "log").stat().st_size == 0, "and begins anew")
        assert (tmp_path / "log.1").stat().st_size == guard.LOG_BYTES_MAX + 1
