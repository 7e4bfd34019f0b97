"""Who takes part in the demo beside engine and Spark: the publisher's thread, and the subscriber's process.

The process gets no signal of the terminal: the demo ends it itself, in its order, and it ends by itself when that is
gone. Its messages go to a file in the demo's folder.
"""

from __future__ import annotations

import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from delivery.client import Publisher, Queue, Receipt
from delivery.demo.flights import Flight
from delivery.demo.receiver import PUT_HEADER, Task
from delivery.demo.report import MessageKey
from delivery.errors import Closed, HootError

_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0
_TICK_SECONDS = 0.01


class DemoFailed(HootError):
    """The demo could not be run to its end, or what it delivered is not what was published."""

    code = "demo_failed"


class Publishing:
    """A thread that publishes flights at a steady pace. It holds at `hold_at` until `release` is called.

    The pace is a limit: after an outage it goes on from there, and does not hurry to catch up. Ends by itself; leaving
    the context ends it early.
    """

    def __init__(self, queue: Queue, flights: Sequence[Flight], per_second: float, hold_at: int) -> None:
        self._queue, self._flights, self._pace, self._hold_at = queue, flights, per_second, hold_at
        self._receipts: list[Receipt] = []
        self._released, self._stop = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="demo-publisher", daemon=True)

    @property
    def count(self) -> int:
        """Flights given to the publisher by now."""
        return len(self._receipts)

    def check(self) -> None:
        """Raises DemoFailed when it failed."""
        if self._error is not None:
            raise DemoFailed(f"the publisher failed: {self._error}") from self._error

    def release(self) -> None:
        """Go on beyond `hold_at`."""
        self._released.set()

    def stored(self) -> list[MessageKey]:
        """Where each flight was stored, in the order of `flights`. Raises DemoFailed if it failed."""
        self._thread.join()
        self.check()
        return [(stored.partition, int(stored.id)) for stored in (receipt.result(0) for receipt in self._receipts)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._released.set()
        if kind is None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with self._queue.publisher() as publisher:
                self._publish(publisher)
        except Exception as error:  # noqa: BLE001 - told where the demo waits for it
            self._error = error

    def _publish(self, publisher: Publisher) -> None:
        per_tick, due = max(1, round(self._pace * _TICK_SECONDS)), time.monotonic()
        pause = per_tick / self._pace
        while (start := len(self._receipts)) < len(self._flights):
            if start >= self._hold_at:
                self._released.wait()
            if self._stop.is_set():
                raise Closed("the demo was ended early")
            for flight in self._flights[start : start + per_tick]:
                self._receipts.append(_put(publisher, flight))
            due = max(due + pause, time.monotonic() - pause)
            self._stop.wait(max(0.0, due - time.monotonic()))


def _put(publisher: Publisher, flight: Flight) -> Receipt:
    headers = {"event_time": flight.event_time.encode(), PUT_HEADER: str(time.monotonic_ns()).encode()}
    return publisher.put(flight.body, key=flight.carrier.encode(), topic=flight.origin, headers=headers)


class Receiver:
    """The subscriber's process. Killed, it can be started again; a context manager that ends it."""

    def __init__(self, task: Task, log: Path) -> None:
        self._command = [sys.executable, "-m", "delivery.demo.receiver", msgspec.json.encode(task).decode()]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when its subscriptions are attached. Raises DemoFailed with the end of its log."""
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        assert self._process.stdout is not None
        if _line(self._process.stdout, _READY_SECONDS) != b"ready\n":
            self.kill()
            raise DemoFailed(f"the subscriber did not start; its log ends: {log_end(self._log)}")

    def check(self) -> None:
        """Raises DemoFailed when the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise DemoFailed(f"the subscriber ended by itself; its log ends: {log_end(self._log)}")

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """Let the process end by itself, and kill it if that takes too long. Stopping twice is fine."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def log_end(log: Path) -> str:
    """The last lines of a log, in one line."""
    return " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:]) or "(empty)"


def _line(pipe: IO[bytes], seconds: float) -> bytes:
    readable, _, _ = select.select([pipe], [], [], seconds)
    return pipe.readline() if readable else b""
