"""Putting a message aside that its subscription gives up: it is stored elsewhere before anything goes on behind it."""

from __future__ import annotations

import time

import trio

from delivery import logs
from delivery.config import HostConfig
from delivery.dispatch.deadletters import DeadLetter, DeadLetters
from delivery.dispatch.holding import batch_of
from delivery.dispatch.retry import GiveUp
from delivery.dispatch.scanner import Source
from delivery.dispatch.target import Stream
from delivery.errors import HootError
from delivery.ids import MessageId
from delivery.model import Message

log = logs.logger(__name__)


class Morgue:
    """Of one partition of one subscription."""

    def __init__(self, stream: Stream, source: Source, letters: DeadLetters | None, config: HostConfig) -> None:
        """Without `letters` what is given up is dropped."""
        self._stream, self._source, self._letters, self._config = stream, source, letters, config
        self.since: float | None = None
        """By the monotonic clock, while a message is being put aside."""
        self.trouble = ""
        """Why it could not be, yet."""

    async def take(self, given_up: GiveUp) -> None:
        """Return when the message is where it is to be; what keeps it from there is tried again for ever.

        Cancelled: it may be there. Raises what reading the partition does.
        """
        log.warning("%s gives message %s up: %s; last error: %s", self._stream, MessageId(given_up.id),
                    given_up.reason, given_up.attempts.last_error)  # fmt: skip
        if self._letters is None:
            return
        self.since = time.monotonic()
        try:
            await self._keep(given_up, self._letters)
        finally:
            self.since, self.trouble = None, ""

    async def _keep(self, given_up: GiveUp, letters: DeadLetters) -> None:
        stream, message = self._stream, await self.find(given_up.id)
        if message is None:
            log.warning("%s: message %s is stored no longer", stream, MessageId(given_up.id))
            return
        letter = DeadLetter(stream.subscription, message, given_up.reason, given_up.attempts)
        while not await self._stored(letter, letters):  # noqa: ASYNC110 - the store tells nobody that it is back
            await trio.sleep(self._config.reconnect_delay_max_seconds)

    async def find(self, number: int) -> Message | None:
        """The message of that id; None when retention has dropped it. Raises what reading the partition does."""
        batch = await batch_of(self._source, number)
        if batch is None:
            return None
        return next((one for one in batch.messages(self._stream.queue) if one.number == number), None)

    async def _stored(self, letter: DeadLetter, letters: DeadLetters) -> bool:
        try:
            await letters.store([letter])
        except HootError as error:
            self.trouble = error.message
            log.warning("%s waits with message %s, which cannot become a dead letter: %s", self._stream,
                        letter.message.id, error)  # fmt: skip
            return False
        return True
