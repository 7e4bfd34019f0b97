"""What is done about a partition whose hand-over failed after it was closed here, so that nobody waits in vain.

Its record may name this host still, or the target that never opened it, or anybody by now. What names the target in
the very version in which the hand-over left it is withdrawn: nobody owns it then, and all who want it may try. A target
that takes it at the same moment has raised the version, and keeps it.
"""

from __future__ import annotations

import logging
import math
import random
from typing import Final

import trio

from delivery.cluster.claims import Directory
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.sharing.news import News
from delivery.cluster.sharing.takeover import Takeovers
from delivery.errors import BadVersion, HootError
from delivery.metastore.records import HostRecord

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1
"""After the first attempt at which ZooKeeper did not answer; it doubles."""
PAUSE_SECONDS_MAX: Final = 1.0


class Mending:
    """For the trio thread; `run` owns the attempts."""

    def __init__(self, directory: Directory, takeovers: Takeovers, news: News) -> None:
        self._directory, self._takeovers, self._news = directory, takeovers, news
        self._begin, self._begun = trio.open_memory_channel[tuple[OwnedPartition, HostRecord]](math.inf)

    def begin(self, owned: OwnedPartition, target: HostRecord) -> None:
        """Mend what is left of giving `owned` to `target`."""
        self._begin.send_nowait((owned, target))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Mend until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for owned, target in self._begun:
                nursery.start_soon(self._mend, owned, target)

    async def _mend(self, owned: OwnedPartition, target: HostRecord) -> None:
        queue, partition, pause = owned.key.queue, owned.key.partition, PAUSE_SECONDS
        while (free := await self._try(owned, target)) is None:
            await trio.sleep(pause * random.uniform(0.75, 1.25))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        if free:
            self._news.freed(queue, partition, target.host)
        else:
            self._takeovers.look_again(queue, partition)

    async def _try(self, owned: OwnedPartition, target: HostRecord) -> bool | None:
        """Whether nobody owns the partition now; None: ZooKeeper does not say."""
        try:
            return await trio.to_thread.run_sync(self._withdraw, owned, target)
        except HootError as error:
            log.debug("%s: what became of its hand-over is not known yet: %s", owned.key, error)
            return None

    def _withdraw(self, owned: OwnedPartition, target: HostRecord) -> bool:
        key = owned.key
        record, version = self._directory.partition(key.queue, key.partition)
        if record is None or not record.host:
            return True
        if (record.host, record.session, version) != (target.host, target.session, owned.version + 1):
            return False
        try:
            self._directory.release(key.queue, key.partition, record.epoch, version)
        except BadVersion:
            return False
        log.warning("%s: taken back from the host at %s", key, target.host_port)
        return True
