"""An embedded ZooKeeper of a command: found a port for, kept running, and stopped at the end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from delivery.errors import HootError, PortInUse

if TYPE_CHECKING:
    from delivery.embedded import EmbeddedZooKeeper

ZOOKEEPER_PORT = 2181
_LOOK_SECONDS = 1.0
_RESTART_DELAY_MAX_SECONDS = 30.0

log = logging.getLogger(__name__)


@contextlib.contextmanager
def started(folder: Path, port: int | None) -> Iterator[EmbeddedZooKeeper]:
    """An embedded ZooKeeper on `port`, else on 2181 if that is free, else on any; stopped at the end."""
    from delivery.embedded import EmbeddedZooKeeper

    found = EmbeddedZooKeeper(folder, port=port or (ZOOKEEPER_PORT if port is None else None))
    try:
        found.start()
    except PortInUse:
        if port is not None:
            raise
        found = EmbeddedZooKeeper(folder)
        found.start()
    try:
        yield found
    finally:
        found.stop()


async def keep_running(own: EmbeddedZooKeeper) -> None:
    """Start the embedded ZooKeeper again when it ended by itself: a host without it can only wait."""
    import trio

    delay = _LOOK_SECONDS
    while True:
        await trio.sleep(delay)
        if own.alive:
            delay = _LOOK_SECONDS
            continue
        log.error("the embedded ZooKeeper ended by itself; starting it again (its log: %s)", own.log_file)
        try:
            await trio.to_thread.run_sync(own.start)
        except HootError as error:
            delay = min(delay * 2, _RESTART_DELAY_MAX_SECONDS)
            log.error("the embedded ZooKeeper does not start; trying again in %.0f s: %s", delay, error.message)
