"""What an executor does for an archive: reads a stretch from the partition's owner and makes a file of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from delivery.batch import Header, headers_in
from delivery.client.calls import count_messages
from delivery.errors import ArchiveRefused
from delivery.rpc.idl import load_idl
from delivery.spark.planning import Engine
from delivery.spark.ranges import Span
from delivery.storage.archive.writing import Stretch, Written, write

READ_BYTES: Final = 8 << 20


def archive_stretch(hosts: Engine, folder: Path, stretch: Stretch) -> Written | None:
    """A file with what a partition holds between two ids; None when that is nothing.

    Raises ArchiveRefused, also when the owner holds more than it gave; ArchiveUnreadable, and what the owner refuses
    with.
    """
    source = _Source(hosts, stretch)
    written = write(folder, stretch, source.batches())
    messages, until = (0, stretch.until) if written is None else (written.file.messages, written.file.until)
    place = (stretch.queue, stretch.partition)
    held = count_messages(hosts.call, *place, source.after, until)
    if held > messages:
        raise ArchiveRefused(
            f"the host gave {messages} of the {held} messages that {place[0]}/{place[1]} holds between ids"
            f" {source.after} and {until}"
        )
    return written


class _Source:
    """The batches that begin in a stretch, the engine's own among them."""

    def __init__(self, hosts: Engine, stretch: Stretch) -> None:
        self._hosts, self._stretch = hosts, stretch
        self.after = stretch.after
        """The end of a batch that began before the stretch and goes on in it; else where the stretch begins."""

    def batches(self) -> Iterator[tuple[Header, bytes]]:
        """In the order of their ids."""
        stretch, after = self._stretch, self._stretch.after
        while after < stretch.until:
            reply = read_all(self._hosts, stretch, after)
            for at, header in headers_in(reply.batches):
                if header.base_id <= stretch.after:
                    self.after = header.last_id
                elif header.base_id <= stretch.until:
                    yield header, bytes(reply.batches[at : at + header.length])
            if reply.position <= after:
                return
            after = reply.position


def read_all(hosts: Engine, stretch: Stretch | Span, after: int) -> Any:
    """The next batches of a stretch behind an id, the engine's own among them."""
    request = load_idl("delivery").ReadRequest(
        queue=stretch.queue, partition=stretch.partition, after=after, upTo=stretch.until, topics=[],
        bytesMax=READ_BYTES, waitMs=0, asides=True,
    )  # fmt: skip
    return hosts.call(stretch.queue, stretch.partition, "read", request)
