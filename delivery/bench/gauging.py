"""What a process and its children cost, as Linux's /proc tells it: memory that is resident, and processor time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from delivery.bench.report import Result

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FORGET_PEAK: Final = "5"
"""See clear_refs in proc(5)."""


def resident_mib(pid: int | None) -> int | None:
    """Resident memory of a process and its descendants, in MiB; None for none."""
    return None if pid is None else _memory_mib(pid, "VmRSS")


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its descendants that live."""
    fields = [found.rpartition(")")[2].split() for one in _family(pid) if (found := _read(one, "stat"))]
    return sum(int(one[11]) + int(one[12]) for one in fields) / _TICKS


class Cost:
    """What a process and its descendants cost since this was made, or since the last `begin`.

    The most memory is the sum of each one's most, as the kernel keeps it, so nothing runs meanwhile and nothing is
    missed. Where the kernel does not forget it on demand it is that since the process began.
    """

    def __init__(self, pid: int | None) -> None:
        """Of a process; None for an engine that is not the bench's own: it costs nothing that could be told."""
        self._pid = pid
        for one in [] if pid is None else _family(pid):
            with suppress(OSError):
                Path(f"/proc/{one}/clear_refs").write_text(_FORGET_PEAK)
        self.begin()

    def begin(self) -> None:
        """Count processor time from here on; memory as before."""
        self._spent = 0.0 if self._pid is None else processor_seconds(self._pid)

    def peak_mib(self) -> int | None:
        """The most resident memory so far."""
        return None if self._pid is None else _memory_mib(self._pid, "VmHWM")

    def beside(self, found: Result) -> Result:
        """A result with what it cost."""
        if self._pid is None:
            return found
        spent = processor_seconds(self._pid) - self._spent
        each = round(spent / found.messages * 1e6, 3)
        return msgspec.structs.replace(found, host_seconds_per_million=each, host_mib=self.peak_mib())


def _memory_mib(pid: int, name: str) -> int:
    lines = [line for one in _family(pid) for line in _read(one, "status").splitlines() if line.startswith(name)]
    return sum(int(line.split()[1]) for line in lines) // 1024


def _family(pid: int) -> list[int]:
    """The process, its children, which the kernel lists by the thread that started them, and theirs."""
    found = [pid]
    for one in found:  # which grows
        for thread in Path(f"/proc/{one}").glob("task/[0-9]*"):
            found += map(int, _read(one, f"task/{thread.name}/children").split())
    return found


def _read(pid: int, name: str) -> str:
    """Empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
