"""The README's first steps as they are printed: the two commands, and then its twenty lines as a program."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delivery import Client, MessageId
from tests.integration.cli.running import Hoot
from tests.integration.embedded import ROOT, eventually
from tests.integration.engine import Engine

pytestmark = pytest.mark.integration

README = (ROOT / "README.md").read_text()
PRINTED = re.compile(r"(\d+-\d+) (\d) b'(customer-\d)' b'order (\d+)'")
DEFAULT = "127.0.0.1:2181"
"""Where `hoot serve` brings its ZooKeeper; another engine has it while tests run."""


@contextmanager
def program(address: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The twenty lines as a process, and the lines that it prints."""
    [text] = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert text.count(DEFAULT) == 2
    file = folder / "billing.py"
    file.write_text(text.replace(DEFAULT, address))
    process = subprocess.Popen(
        [sys.executable, "-u", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        said: list[str] = []
        reader = threading.Thread(target=said.extend, args=[process.stdout])
        reader.start()
        try:
            yield process, said
        finally:
            process.kill()
            reader.join(30)


def once(address: str, folder: Path, count: int) -> tuple[str, list[tuple[str, ...]]]:
    """Run it until `count` messages were printed, and end it with Ctrl-C: its receipt, and what was printed of each."""
    with program(address, folder) as (process, said):
        eventually(lambda: len(said) > count or process.poll() is not None, f"{count} messages are printed", 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, "".join(said[-20:])
    receipt, *printed = said
    found = [PRINTED.fullmatch(line.rstrip("\n")) for line in printed]
    assert all(found), "".join(said[:20])
    return receipt, [one.groups() for one in found if one is not None]


def test_the_twenty_lines_run_as_they_are_printed_and_resume_where_they_left_off(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    [create] = re.findall(r"`(hoot queue create orders[^`]*)`; then", README)
    Hoot(running.address)(*shlex.split(create)[1:])
    receipt, printed = once(running.address, tmp_path, 1000)
    assert "durability='fsync'" in receipt
    assert sorted(int(number) for *_, number in printed) == list(range(1000))
    assert all(key == f"customer-{int(number) % 10}" for _, _, key, number in printed)
    for partition in {partition for _, partition, _, _ in printed}:
        ids = [MessageId.parse(one) for one, place, _, _ in printed if place == partition]
        assert ids == sorted(ids), "in order within a partition"
    eventually(lambda: client.subscription_info("orders", "billing").lag == 0, "all is acknowledged")
    _, again = once(running.address, tmp_path, 1000)
    assert sorted(int(number) for *_, number in again) == list(range(1000)), "the next run prints what it published"
    assert not {one for one, *_ in printed} & {one for one, *_ in again}
