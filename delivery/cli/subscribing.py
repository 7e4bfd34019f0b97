"""What `hoot subscribe` does: a subscriber whose listener prints."""

from __future__ import annotations

import contextlib
import getpass
import logging
import re
import secrets
import threading
from functools import partial
from pathlib import Path
from typing import NamedTuple

from delivery.cli import logs
from delivery.cli.errors import PipeClosed
from delivery.cli.formats import Printer
from delivery.cli.options import Start
from delivery.cli.stopping import on_sigterm
from delivery.filters import KEEP
from delivery.metastore.groups import Kind
from delivery.model import Isolation, Message

_LOOK_SECONDS = 0.2


class Enough(Exception):
    """The limit is reached: this message is not printed, and so it is not handled."""


class PrintingListener:
    """Prints messages as a listener; tells by `done` that nothing more is wanted."""

    def __init__(self, printer: Printer, limit: int | None) -> None:
        self._printer = printer
        self._limit = limit
        self.failure: OSError | None = None
        """What broke standard output."""
        self.done = threading.Event()

    def take(self, message: Message) -> None:
        """Print one message. Raises Enough behind the limit, and OSError: then the message comes again elsewhere."""
        if self.done.is_set():
            raise Enough
        try:
            self._printer.show(message)
            if self._limit is not None and self._printer.count >= self._limit:
                self._printer.flush()
                self.done.set()
        except OSError as error:
            self._fail(error)
            raise

    def flush(self, _: list[Message]) -> None:
        """Hand over what was printed of a push, before it is acknowledged."""
        try:
            self._printer.flush()
        except OSError as error:
            self._fail(error)
            raise

    def _fail(self, error: OSError) -> None:
        self.failure = error
        self.done.set()


class Subscribing(NamedTuple):
    """What was asked for."""

    queue: str
    name: str | None
    partitions: tuple[int, ...] | None
    topics: tuple[str, ...] | None
    filter: str | None
    start: Start | str
    limit: int | None
    force: bool
    form: str
    kind: Kind | None = None
    member: str | None = None
    record: Path | None = None
    """A folder for what `hoot spark audit` compares."""
    isolation: Isolation | None = None

    def run(self, zookeeper: str) -> None:
        """Print until the limit, SIGTERM or Ctrl-C. Raises the error that ended the subscription."""
        from subscriber import Recorder, Subscriber

        listener = PrintingListener(Printer(self.form), self.limit)
        if self.limit == 0:
            return
        logs.set_up("warning", as_json=False)
        for handler in logging.getLogger().handlers:
            # What the listener raises at its limit, and what follows, is no news to the user.
            handler.addFilter(lambda _: not listener.done.is_set())
        name = _passing_name() if self.name is None else self.name
        subscriber = Subscriber(name, zookeeper=zookeeper, force=self.force, member=self.member)
        subscription = subscriber.subscribe(
            self.queue, partitions=self.partitions, topics=self.topics or KEEP, start=self.start,
            filter=self.filter or KEEP, kind=self.kind, isolation=self.isolation,
        )  # fmt: skip
        subscription.listener(listener.take)
        subscription.batch_listener(listener.flush)
        recording = contextlib.nullcontext() if self.record is None else Recorder(self.record, name)
        if isinstance(recording, Recorder):
            subscription.batch_listener(recording)
        told: list[bool] = []  # `done.set` in a signal handler would wait for ever for a lock of this thread's own wait
        with recording, on_sigterm(partial(told.append, True)), subscriber:
            try:
                while not told and not listener.done.wait(_LOOK_SECONDS) and subscription.error is None:
                    if subscription.state == "stopped":  # by itself: this raises why
                        subscriber.run()
                        break
            finally:
                if told:
                    listener.done.set()
                if self.name is None and subscription.error is None:
                    subscriber.unsubscribe(self.queue)
        if isinstance(listener.failure, BrokenPipeError):
            raise PipeClosed from listener.failure
        if error := listener.failure or subscription.error:
            raise error


def _passing_name() -> str:
    """A name that tells people whose it was, should it be left behind."""
    try:
        user = re.sub(r"[^A-Za-z0-9_-]", "", getpass.getuser())[:40]
    except (KeyError, OSError):  # a user without an entry in the system's list, as in containers
        user = ""
    return f"cli-{user or 'user'}-{secrets.token_hex(6)}"
