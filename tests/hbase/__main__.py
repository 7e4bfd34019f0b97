"""`make hbase`, `make hbase-stop`: an HBase of one's own in the background, for trying things and repeated test runs.

    python -m tests.hbase start [--distributed]    returns when it can be used, and says where
    python -m tests.hbase stop                     ends it; fine when none runs

It lives in `.hbase` of the source tree, whose logs are kept and whose data begins empty at every start.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from tests.hbase.jars import JarsError, hbase_jars
from tests.hbase.server import HBase, HBaseError

FOLDER = Path(__file__).resolve().parents[2] / ".hbase"
STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.1


def main(arguments: list[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.hbase", description="A real HBase for tests.")
    parser.add_argument("command", choices=["start", "run", "stop"])
    parser.add_argument("--distributed", action="store_true", help="two region servers and two gateways")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "start":
            return start(distributed=chosen.distributed)
        return run(distributed=chosen.distributed) if chosen.command == "run" else stop()
    except (HBaseError, JarsError) as error:
        print(f"hbase: {error}", file=sys.stderr)
        return 1


def start(*, distributed: bool) -> int:
    """Start `run` in the background and return when it says where its gateways are."""
    if held():
        raise HBaseError(f"one runs already: {gateways() or 'it is starting'}")
    hbase_jars()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "thrift").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.hbase", "run", *(["--distributed"] if distributed else [])]
    with (FOLDER / "run.log").open("wb") as log:
        runner = subprocess.Popen(
            command, cwd=FOLDER.parent, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    while not (FOLDER / "thrift").exists():
        if runner.poll() is not None:
            raise HBaseError((FOLDER / "run.log").read_text())
        threading.Event().wait(_LOOK_SECONDS)
    print(f"HBase: Thrift at {gateways()}, logs in {FOLDER}; make hbase-stop ends it")
    return 0


def run(*, distributed: bool) -> int:
    """An HBase in the foreground until SIGTERM or SIGINT."""
    ending = SimpleQueue[None]()  # an event's lock may be held by the very thread that a signal interrupts
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.put(None))
    with HBase(FOLDER, region_servers=2 if distributed else 0) as hbase:
        (FOLDER / "run.pid").write_text(str(os.getpid()))
        draft = FOLDER / "thrift.tmp"
        draft.write_text(f"{hbase.thrift}\n")
        draft.rename(FOLDER / "thrift")
        ending.get()
    (FOLDER / "thrift").unlink()
    (FOLDER / "run.pid").unlink()
    return 0


def stop() -> int:
    """End the one that runs, by the process id that it wrote, and wait until nothing of it is left."""
    if not held():
        print("HBase: none runs")
        return 0
    os.kill(int((FOLDER / "run.pid").read_text()), signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while held():
        if time.monotonic() > deadline:
            raise HBaseError(f"it did not end in {STOP_SECONDS:g} s; see {FOLDER / 'run.log'}")
        threading.Event().wait(_LOOK_SECONDS)
    print("HBase: ended")
    return 0


def gateways() -> str | None:
    """The Thrift gateways of the one that runs, as `host:port,…`; None when there is none to be used."""
    return (FOLDER / "thrift").read_text().strip() if held() and (FOLDER / "thrift").exists() else None


def held() -> bool:
    """Whether an HBase runs in the folder: its programs hold the lock, and the system frees it with the last one."""
    try:
        with (FOLDER / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
