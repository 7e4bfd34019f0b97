"""A thread that works beside a test for as long as a block lasts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

END_SECONDS = 60.0


class Background(ABC):
    """A context manager: `work` runs inside the block until `_stop` is set, and the block's end raises its error."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    @abstractmethod
    def work(self) -> None:
        """Return soon after `_stop` was set."""

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 (the test gets it)
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(END_SECONDS)
        assert not self._thread.is_alive(), f"{self._thread.name} hangs"
        if self.error is not None:
            raise self.error
