"""Scanners over several partitions, one of which cannot be read for a moment."""

from __future__ import annotations

from typing import Any

import pytest

from delivery.client import scanners
from delivery.client.scanners import CombinedPartitionScanner, Scope
from delivery.errors import HostUnreachable
from delivery.model import Message


class Part:
    """A partition with two messages, which its first look does not reach if it is the second one."""

    def __init__(self, _: Any, queue: str, partition: int, *__: Any) -> None:
        self.fails = partition == 1
        self.left = [Message(10 * number + partition, b"", "", None, partition, queue, b"") for number in (1, 2)]

    def poll(self, _: float) -> Message | None:
        fails, self.fails = self.fails, False
        if fails:
            raise HostUnreachable("away for a moment")
        return self.left.pop(0) if self.left else None


@pytest.mark.parametrize("timeout", [None, 1.0])
def test_what_could_not_be_read_for_a_moment_comes_when_it_can(
    timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanners, "PartitionScanner", Part)
    scanner = CombinedPartitionScanner(None, "q", [0, 1, 2], Scope())  # type: ignore[arg-type]
    with pytest.raises(HostUnreachable):
        scanner.next(timeout)
    found = [message.number for message in iter(lambda: scanner.next(timeout), None)]
    assert sorted(found) == [10, 11, 12, 20, 21, 22]
