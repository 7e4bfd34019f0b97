"""Message ids are arithmetic: (timestamp in ms, sequence 0…32767) as one number, `ms × 32768 + sequence`.

Seed 004, section 3.2: an id is the host's time stamp and a sequence number below Short.MAX_VALUE under it. The owner
gives a batch of `count` messages the run `max(last + 1, now_ms × 32768) … + count − 1`. So one base id gives them all,
ids rise strictly when the clock steps back and when a millisecond overflows, and the order of the 8 big-endian bytes is
the order of the numbers. Ids are not consecutive: never infer a count from a difference.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime

from delivery.errors import ClockWrong, InvalidRequest

SEQUENCES_PER_MS = 32768
"""Ids in one millisecond before a run spills into the next."""
ID_MAX = 2**62 - 1
"""The largest id that is given out; leaves room so that no arithmetic on ids overflows a signed 64-bit number."""
EARLIEST = 0
"""The id after which everything that is stored comes."""
LATEST = -1
"""Stands for the last id, where it is not known yet."""
LATEST_PER_KEY = "latest-per-key"
"""Where a subscription can begin, too: with the newest stored message of each key, and those without a key."""
CLOCK_AHEAD_MS_MAX = 3_600_000
"""How far ids may run ahead of the clock before appends are refused: a clock that was wrong by more needs a person."""

_TEXT = re.compile(r"(\d{1,15})-(\d{1,5})\Z", re.ASCII)
_NUMBER = re.compile(r"\d{1,19}\Z", re.ASCII)


class MessageId(int):
    """A message id. Compares, sorts and hashes as its number; prints as `milliseconds-sequence`."""

    __slots__ = ()

    @classmethod
    def of(cls, timestamp_ms: int, sequence: int = 0) -> MessageId:
        """The id at `timestamp_ms` with `sequence` (0…32767)."""
        if not 0 <= sequence < SEQUENCES_PER_MS or timestamp_ms < 0:
            raise InvalidRequest(f"no message id has timestamp {timestamp_ms} and sequence {sequence}")
        return cls(timestamp_ms * SEQUENCES_PER_MS + sequence)

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Read `1732165000000-12` or the plain number. Raises InvalidRequest on anything else."""
        if parts := _TEXT.match(text):
            number = MessageId.of(int(parts[1]), int(parts[2]))
        elif _NUMBER.match(text):
            number = cls(text)
        else:
            raise InvalidRequest(f"{text[:40]!r} is not a message id: expected MILLISECONDS-SEQUENCE or a number")
        if number > ID_MAX:
            raise InvalidRequest(f"message id {text[:40]} is beyond the largest, {MessageId(ID_MAX)}")
        return number

    @property
    def timestamp_ms(self) -> int:
        """When the owner took the message, in milliseconds since 1970."""
        return self >> 15

    @property
    def sequence(self) -> int:
        """The place among the messages of that millisecond, 0…32767."""
        return self & (SEQUENCES_PER_MS - 1)

    @property
    def time(self) -> datetime:
        """`timestamp_ms` as an aware datetime in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    def __str__(self) -> str:
        return f"{self.timestamp_ms}-{self.sequence}"

    def __repr__(self) -> str:
        return f"MessageId({self})"


def first_id_at(timestamp_ms: int) -> int:
    """The smallest id that a message taken at `timestamp_ms` or later can have."""
    return max(0, timestamp_ms) * SEQUENCES_PER_MS


Start = str | int | datetime
"""Where to begin in a partition:

    "earliest"   at the oldest message still stored
    "latest"     behind the last message stored
    a message id (MessageId, its number, or its text "1732165000000-12"): at the first message with this or a later id
    a datetime   at the first message that a host took at this time or later; it must have a time zone. Also as its
                 text in ISO 8601 ("2026-01-31T12:00:00Z")
"""


def check_start(start: Start) -> int:
    """The id after which `start` begins, or LATEST. Raises InvalidRequest when it is none of the four kinds."""
    if isinstance(start, str) and start in ("earliest", "latest"):
        return EARLIEST if start == "earliest" else LATEST
    if isinstance(start, str):
        start = _read(start)
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidRequest(f"the start {start} has no time zone: use datetime.now(UTC) or .astimezone()")
        return min(max(first_id_at(_up_to_ms(start)) - 1, EARLIEST), ID_MAX - 1)
    if not _is_number(start) or not 0 <= start <= ID_MAX:
        raise _no_place(start)
    return max(start - 1, EARLIEST)


def is_message_id(start: Start) -> bool:
    """Whether a start that was checked is one message's id, and neither a time nor an end."""
    if isinstance(start, str):
        return start not in ("earliest", "latest") and isinstance(_read(start), MessageId)
    return _is_number(start)


def _read(text: str) -> MessageId | datetime:
    try:
        return MessageId.parse(text)
    except InvalidRequest:
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(text)
        raise _no_place(text) from None


def _no_place(start: object) -> InvalidRequest:
    return InvalidRequest(
        f'{str(start)[:40]!r} is no place in a queue: use "earliest", "latest", a message id, or a time with its zone'
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _up_to_ms(time: datetime) -> int:
    seconds = time.replace(microsecond=0).timestamp()
    return int(seconds) * 1000 + -(-time.microsecond // 1000)


class IdClock:
    """Gives out the ids of one partition under one epoch. Not thread-safe: its owner is the partition's writer."""

    __slots__ = ("last",)

    def __init__(self, last: int) -> None:
        """`last` is the highest id that the partition's store holds, 0 when it is empty."""
        self.last = last

    def follow(self, base: int, count: int, now_ms: int) -> None:
        """Ids that were given elsewhere come next.

        Raises InvalidRequest, nothing taken, when they do not rise; ClockWrong when they are far ahead of the clock.
        """
        if base <= self.last:
            raise InvalidRequest(f"{MessageId(base)} is not above the last id, {MessageId(self.last)}")
        if base + count > min((now_ms + CLOCK_AHEAD_MS_MAX) * SEQUENCES_PER_MS, ID_MAX):
            raise ClockWrong(f"{MessageId(base)} is more than an hour ahead of this machine's clock")
        self.last = base + count - 1

    def take(self, count: int, now_ms: int) -> int:
        """The base id of a run of `count`.

        Raises ClockWrong, nothing given out, when the clock is far behind the ids stored, or where ids end.
        """
        base = max(self.last + 1, now_ms * SEQUENCES_PER_MS)
        if base > (now_ms + CLOCK_AHEAD_MS_MAX) * SEQUENCES_PER_MS:
            raise ClockWrong(
                f"the last id is {MessageId(self.last).time:%Y-%m-%d %H:%M:%S} UTC, more than an hour after this"
                " machine's clock: set the clock right before publishing here"
            )
        if base + count > ID_MAX:
            raise ClockWrong("this machine's clock is beyond the largest id: set it right before publishing here")
        self.last = base + count - 1
        return base
