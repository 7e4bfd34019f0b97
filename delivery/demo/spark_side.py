"""The process of the demo in which Spark is: `python -m delivery.demo.spark_side ZOOKEEPER FOLDER SOCKET`.

Its own process, so that Spark's messages and its JVM stay apart from the demo. Does what comes over the socket (see
errands), an errand after another in one session of Spark's. Ends at the end of its standard input, as the JVM then does
at the end of its own.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import msgspec

from delivery.demo.errands import Archive, Audit, Count, Done, Errand, Failed, Reached, Replay, Reply
from delivery.demo.flights import Sums
from delivery.embedded.lifeline import end_with_parent
from delivery.errors import HootError
from delivery.spark.flights import carrier_summary
from delivery.spark.jobs.archive import archive
from delivery.spark.jobs.audit.auditing import Wanted, audit
from delivery.spark.jobs.choosing import Chosen
from delivery.spark.jobs.replaying import Wishes, replay
from delivery.spark.session import local_session


class Side:
    """One session, and who asks."""

    def __init__(self, zookeeper: str, folder: Path, asking: socket.socket) -> None:
        self._zookeeper, self._asking = zookeeper, asking
        self._session = local_session("hoot demo", folder)

    def serve(self) -> None:
        """Do errands until nobody asks any more, then stop Spark."""
        for line in self._asking.makefile("rb"):
            try:
                answer = self._do(msgspec.json.decode(line, type=Errand))
            except HootError as error:
                self._say(Failed(error.message))
            else:
                self._say(Done(answer))
        self._session.stop()

    def _say(self, reply: Reply) -> None:
        self._asking.sendall(msgspec.json.encode(reply) + b"\n")

    def _reached(self, done: int, total: int) -> None:
        self._say(Reached(done, total))

    def _do(self, errand: Errand) -> object:
        match errand:
            case Count(queue):
                return self._count(queue)
            case Archive(queue, folder):
                return self._archive(queue, Path(folder))
            case Replay(queue, target, sql):
                done = replay(self._session, self._all(queue), target, Wishes(sql=sql), progress=self._reached)
                return done.messages
            case Audit(queue, folder, records):
                wanted = Wanted(records=records)
                return audit(
                    self._session, self._all(queue), Path(folder), wanted, progress=self._reached
                ).subscriptions

    def _count(self, queue: str) -> dict[str, Sums]:
        rows = carrier_summary(self._session, self._zookeeper, queue).collect()
        return {row["carrier"] or "": (row["flights"], row["departed"], row["delay_sum"]) for row in rows}

    def _archive(self, queue: str, folder: Path) -> tuple[int, int, int]:
        done = archive(self._session, self._zookeeper, queue, folder, progress=self._reached)
        return sum(one.messages for one in done), sum(one.files for one in done), sum(one.bytes for one in done)

    def _all(self, queue: str) -> Chosen:
        return Chosen(zookeeper=self._zookeeper, queue=queue)


if __name__ == "__main__":
    end_with_parent()
    Side(sys.argv[1], Path(sys.argv[2]), socket.socket(fileno=int(sys.argv[3]))).serve()
