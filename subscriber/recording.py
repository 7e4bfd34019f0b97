"""A file of what was delivered when, for `hoot spark audit`.

A line of JSON for the messages of each push (see Line). It is with the operating system before the push is
acknowledged, so that a kill -9 takes no line away whose messages count as handled; a loss of power may.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Self

import msgspec

from delivery import wall
from delivery.errors import InvalidRequest
from delivery.model import Message

SUFFIX = ".deliveries.json"


class Line(msgspec.Struct, frozen=True):
    """What was delivered together."""

    queue: str
    subscription: str
    partition: int
    at_ms: int
    """When the listeners before the recorder had handled them: milliseconds since 1970, by this machine's clock."""
    listener: str
    """Machine and process."""
    ids: list[int]
    """As numbers."""


class Recorder:
    """A batch listener, to be registered behind all others: `subscription.batch_listener(Recorder(folder, name))`.

    Each one writes a file of its own in the folder. Thread-safe. Whoever makes it closes it.
    """

    def __init__(self, folder: str | Path, subscription: str) -> None:
        """Makes the folder when it is not there. Raises InvalidRequest when it cannot be written."""
        self._subscription, self._listener = subscription, f"{socket.gethostname()}:{os.getpid()}"
        path = Path(folder) / f"{subscription}-{os.getpid()}-{secrets.token_hex(6)}{SUFFIX}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise InvalidRequest(f"deliveries cannot be recorded in {folder}: {error.strerror or error}") from error

    def __call__(self, messages: Sequence[Message]) -> None:
        """Write down that these were handled. Raises OSError; then they come again."""
        at = wall.ms()
        for (queue, partition), group in groupby(messages, key=lambda one: (one.queue, one.partition)):
            ids = [one.number for one in group]
            line = msgspec.json.encode(Line(queue, self._subscription, partition, at, self._listener, ids)) + b"\n"
            if os.write(self._file, line) < len(line):
                raise OSError("a delivery was recorded in part: the disk is full")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
