"""A process that appends is killed with -9 at random moments; whatever it acknowledged is there afterwards."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from delivery.model import QueueSettings
from delivery.storage.log import SegmentedLog
from tests.integration.log_appender import body
from tests.stores import KEY, OTHER, headers_of, log_files, messages_of

TOP = Path(__file__).resolve().parents[2]
KILLS = 6
GROUP_MAX = 20


def read_lines(pipe: IO[bytes], count: int) -> list[bytes]:
    lines = [pipe.readline() for _ in range(count)]
    assert all(line.endswith(b"\n") for line in lines), "the appender ended by itself"
    return lines


def run_and_kill(data: Path, epoch: int, seed: int, lines: int) -> list[tuple[int, int]]:
    """Let it acknowledge some batches, kill it wherever it is then; everything that it acknowledged."""
    command = [sys.executable, "-m", "tests.integration.log_appender", str(data), str(epoch), str(seed)]
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        try:
            acknowledged = read_lines(process.stdout, lines)
        finally:
            process.kill()
        acknowledged += [line for line in process.stdout if line.endswith(b"\n")]
    return [(int(partition), int(base)) for partition, base in (line.split() for line in acknowledged)]


def run_kills(data: Path, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: list[tuple[int, int]] = []
    for epoch in range(1, KILLS + 1):
        acknowledged += run_and_kill(data, epoch, chance.randrange(1 << 30), chance.randint(1, 400))
        log = SegmentedLog(data, segment_bytes=100_000)
        extra = 0
        for key in (KEY, OTHER):
            # The same epoch: the next child takes the one above, as an owner would.
            state = log.open(key, epoch, QueueSettings())
            stored = [message.number for message in messages_of(log, key)]
            expected = [base for partition, base in acknowledged if partition == key.partition]
            assert set(expected) <= set(stored)
            assert stored == sorted(set(stored))
            assert all(message.body == body(message.number) for message in messages_of(log, key))
            assert state.last_id == (stored[-1] if stored else 0)
            mine = [each.sequence for each in state.producers if each.producer_id == epoch]
            assert mine == [h.base_id for h in headers_of(log, key) if h.epoch == epoch][-16:]
            extra += len(set(stored) - set(expected))
            acknowledged += [(key.partition, base) for base in set(stored) - set(expected)]
        assert extra <= GROUP_MAX, "only the group in flight may be there without an acknowledgement"
        log.close()
    assert len(log_files(data, "index")) > KILLS


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(2))
def test_every_acknowledged_batch_survives_kill_9(tmp_path: Path, seed: int) -> None:
    run_kills(tmp_path, seed)


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 50))
def test_every_acknowledged_batch_survives_kill_9_many_times(tmp_path: Path, seed: int) -> None:
    run_kills(tmp_path, seed)
