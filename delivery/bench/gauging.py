"""What a process and its children cost, as Linux's /proc tells it: memory that is resident, and processor time."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PEAK_SECONDS: Final = 0.2


def resident_mib(pid: int | None) -> int | None:
    """Resident memory of a process and its descendants, in MiB; None for none."""
    if pid is None:
        return None
    lines = [line for one in _family(pid) for line in _read(one, "status").splitlines() if line.startswith("VmRSS")]
    return sum(int(line.split()[1]) for line in lines) // 1024


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its descendants that live."""
    fields = [found.rpartition(")")[2].split() for one in _family(pid) if (found := _read(one, "stat"))]
    return sum(int(one[11]) + int(one[12]) for one in fields) / _TICKS


class Peak:
    """The most memory of a process and its descendants that was seen while the context lasts."""

    def __init__(self, pid: int | None) -> None:
        self.mib = resident_mib(pid)
        """None without a process."""
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="gauge", daemon=True)

    def __enter__(self) -> Self:
        if self._pid is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._pid is not None:
            self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_PEAK_SECONDS):
            self.mib = max(self.mib or 0, resident_mib(self._pid) or 0)


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:  # which grows
        found += map(int, _read(one, f"task/{one}/children").split())
    return found


def _read(pid: int, name: str) -> str:
    """Empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
