"""Redis Streams through redis-py with hiredis: pipelined XADD; XREADGROUP and XACK in one round trip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from delivery.bench.peers.base import Inbox, Peer, Send, Take
from delivery.bench.peers.servers import LOOPBACK, a_port, running

_PIPELINE: Final = 500
_COUNT: Final = 1000
_BLOCK_MS: Final = 200


class Redis(Peer):
    """Its append-only file, as a Redis that must not lose much is set up."""

    name = "redis-streams"
    durability = "append-only file, fsync every second"
    share = 0.25
    library, module = "redis", "redis"
    commands = ("redis-server",)
    appendfsync: ClassVar[str] = "everysec"

    def lacking(self) -> str:
        """See Peer."""
        from importlib.util import find_spec

        absent = find_spec("hiredis") is None
        return super().lacking() or ("hiredis is not installed (pip install 'hoot[compare]')" if absent else "")

    @contextmanager
    def server(self, folder: Path) -> Iterator[str]:
        """See Peer."""
        port = a_port()
        options = {"bind": LOOPBACK, "port": port, "dir": folder, "save": "", "appendonly": "yes",
                   "appendfsync": self.appendfsync}  # fmt: skip
        named = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        with running(folder, ["redis-server", *named], port):
            yield f"{LOOPBACK}:{port}"

    def server_version(self, address: str) -> str:
        """See Peer."""
        with _connected(address) as redis:
            return f"Redis {redis.info('server')['redis_version']}"

    def prepare(self, address: str, queue: str, groups: Sequence[str]) -> None:
        """See Peer."""
        with _connected(address) as redis:
            for group in groups:
                redis.xgroup_create(queue, group, id="0", mkstream=True)

    @contextmanager
    def publisher(self, address: str, queue: str) -> Iterator[Send]:
        """See Peer."""
        with _connected(address) as redis:

            def send(bodies: Iterable[bytes]) -> None:
                if not isinstance(bodies, Sequence):
                    for body in bodies:
                        redis.xadd(queue, {b"b": body})
                    return
                rest = iter(bodies)
                while some := list(islice(rest, _PIPELINE)):
                    pipeline = redis.pipeline(transaction=False)
                    for body in some:
                        pipeline.xadd(queue, {b"b": body})
                    pipeline.execute()

            yield send

    def consume(self, address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
        """See Peer."""
        with _connected(address) as redis:
            done: list[bytes] = []
            while not inbox.over:
                pipeline = redis.pipeline(transaction=False)
                if done:
                    pipeline.xack(queue, group, *done)
                pipeline.xreadgroup(group, "bench", {queue: ">"}, count=_COUNT, block=_BLOCK_MS)
                read = pipeline.execute()[-1]
                entries = read[0][1] if read else []
                for _, fields in entries:
                    take(fields[b"b"])
                done = [entry for entry, _ in entries]
            redis.xack(queue, group, *done)


class RedisAlways(Redis):
    """With an fsync for whatever a turn of its loop has written."""

    name = "redis-streams-fsync"
    durability = "append-only file, fsync before the acknowledgement"
    appendfsync = "always"


def _connected(address: str) -> Any:
    from redis import Redis as Client

    host, _, port = address.partition(":")
    return Client(host, int(port))
