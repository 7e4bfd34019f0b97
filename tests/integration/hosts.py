"""A region host of its own thread, in this process, for tests that talk to it over its sockets."""

from __future__ import annotations

import queue
import threading
from functools import partial
from types import TracebackType
from typing import Self

import trio

from delivery.app import serve
from delivery.config import HostConfig
from delivery.metastore.records import HostRecord
from delivery.rpc.blocking import BlockingConnection
from subscriber.unwrapping import only_error

START_SECONDS = 30.0


class RunningHost:
    """Started by `with`, which raises what kept it from starting; stopped cleanly at the end."""

    def __init__(self, config: HostConfig) -> None:
        self._config = config
        self._said: queue.SimpleQueue[HostRecord | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="host", daemon=True)
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._record: HostRecord | None = None

    @property
    def record(self) -> HostRecord:
        assert self._record is not None
        return self._record

    @property
    def http(self) -> str:
        return f"http://{self.record.address}:{self.record.http_port}"

    def connect(self) -> BlockingConnection:
        return BlockingConnection(self.record.address, self.record.port)

    def stop(self) -> None:
        if self._thread.is_alive() and self._token is not None and self._stop is not None:
            self._token.run_sync_soon(self._stop.set)
        self._thread.join(START_SECONDS)
        assert not self._thread.is_alive(), "the host did not stop"

    def __enter__(self) -> Self:
        self._thread.start()
        said = self._said.get(timeout=START_SECONDS)
        if isinstance(said, BaseException):
            self._thread.join(START_SECONDS)
            raise said
        self._record = said
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # noqa: BLE001 (the thread that asked for the host gets it)
            self._said.put(only_error(error))

    async def _serve(self) -> None:
        self._stop, self._token = trio.Event(), trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._said.put(await nursery.start(partial(serve, self._config, stop=self._stop)))
