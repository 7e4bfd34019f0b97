"""What of the real code is replaced while a simulation runs: threads, clocks, sockets, chance."""

from __future__ import annotations

import random
import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import trio
from trio._core import _run

from delivery import wall
from delivery.client import sender
from delivery.cluster.hosts import membership, peers
from delivery.cluster.sharing import placing
from delivery.dispatch import retrier
from delivery.metastore import access
from delivery.metastore.records import HostRecord
from delivery.metastore.tables import zookeeper as tables
from tests.simulation.kernel import Kernel
from tests.simulation.machine import here, spend
from tests.simulation.peers import SimulatedPool, open_stream
from tests.simulation.publisher import ANSWER_SECONDS, SILENT_SECONDS, SimulatedLink, SimulatedPoll
from tests.simulation.watching import StrandShots

T = TypeVar("T")

_Random = random.Random


async def _run_sync(
    work: Callable[..., T], *args: Any, limiter: trio.CapacityLimiter | None = None, **_options: object
) -> T:
    """trio.to_thread.run_sync, with a strand of the machine in the place of the thread."""
    machine = here.get()
    await trio.lowlevel.checkpoint_if_cancelled()
    if limiter is None:
        return await machine.run_blocking(partial(work, *args))
    async with limiter:
        return await machine.run_blocking(partial(work, *args))


def _is_gone(record: HostRecord) -> bool:
    """cluster.probe.is_gone: whether connections are refused."""
    machine: Any = here.get()
    cut = machine.network.is_cut(machine.name, record.host)
    spend(0.5 if cut else 0.001)
    return not cut and (record.address, record.port) not in machine.network.listening


def _random(seed: object = None) -> random.Random:
    """random.Random, which without a seed would take one from the system."""
    return _Random(random.getrandbits(64) if seed is None else seed)  # type: ignore[arg-type]


@contextmanager
def simulated(seed: int, kernel: Kernel) -> Iterator[None]:
    """The replacements, for one run."""
    random.seed(seed)
    replaced: list[tuple[object, str, object]] = [
        (trio.to_thread, "run_sync", _run_sync),
        (trio, "open_tcp_stream", open_stream),
        (peers, "Pool", SimulatedPool),
        (membership, "is_gone", _is_gone),
        (tables, "OneShots", StrandShots),
        (access, "time", SimpleNamespace(sleep=spend)),
        (wall, "ms", lambda: here.get().wall_ms()),
        (retrier, "wall_ms", lambda: here.get().wall_ms()),
        (sender, "Link", SimulatedLink),
        (sender, "ANSWER_SECONDS", ANSWER_SECONDS),
        (sender, "SILENT_SECONDS", SILENT_SECONDS),
        (sender, "monotonic", lambda: kernel.now),
        (sender, "select", SimpleNamespace(epoll=SimulatedPoll, EPOLLIN=select.EPOLLIN)),
        (random, "SystemRandom", lambda: random),
        (random, "Random", _random),
        (placing, "Random", _random),
        (_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
    ]
    with ExitStack() as stack:
        for where, name, what in replaced:
            stack.enter_context(mock.patch.object(where, name, what))
        yield
