"""The unacknowledged pushes of one partition of one subscription, and the position behind which all is acknowledged.

Pure: no clock, no I/O. The position is what a checkpoint may say: it never passes an id whose push was not
acknowledged, it never goes back, and acknowledgements in any order move it only over a contiguous prefix.

Pushes belong to a *run*. A failure or a broken connection ends the run: everything outstanding is forgotten, the next
run begins behind the position, and a reply that still arrives for an old run changes nothing.

A topic filter moves the position where the listener hears of nothing. So what a push is said to follow (`told`) is the
push before it, or what the listener itself acknowledged last: without gaps, so that a listener which remembers what it
has handled never takes a rewind for a new beginning.
"""

from __future__ import annotations

import msgspec

from delivery.errors import ProtocolError


class Sent(msgspec.Struct, gc=False):
    """One push that is out, of messages above `told` up to `end`."""

    run: int
    told: int
    """What the listener knows it to follow; nothing that is meant for it is in between."""
    end: int
    last_id: int
    """At or above `end`: nothing is wanted of what is in between, either."""
    messages: int
    bytes: int
    at: float = 0.0
    """When it went out, if anybody wants to know."""
    done: bool = False


class Window:
    """Admits pushes while there is room, takes their outcomes, and tells the position."""

    __slots__ = (
        "_bytes", "_heard", "_messages", "_sent", "_spanned", "bytes_max", "messages_max", "position", "run",
        "singly_until", "span_max", "told",
    )  # fmt: skip

    def __init__(self, position: int, messages_max: int, bytes_max: int, first_run: int = 0) -> None:
        """`position` is the last checkpoint. The limits, which may change, bound what is out and not answered.

        `first_run` must be higher than any run that the same listener saw from this epoch.
        """
        self.position = position
        self._heard = position
        self.told = position
        """What the next push follows, as the listener knows it."""
        self.run = first_run
        self.messages_max, self.bytes_max = messages_max, bytes_max
        self.span_max = messages_max
        """Behind the position, answered or not: what a fault can deliver twice. So are the bytes."""
        self._messages = self._spanned = self._bytes = 0
        self._sent: list[Sent] = []  # an empty deque takes ten times as much
        self.singly_until = 0
        """Up to this id one push at a time is out."""

    def __repr__(self) -> str:
        return f"<Window run {self.run}, position {self.position}, {self._messages} messages unacknowledged>"

    @property
    def unacknowledged(self) -> int:
        """Messages that are out without an answer."""
        return self._messages

    @property
    def empty(self) -> bool:
        """Whether nothing is out."""
        return not self._sent

    @property
    def heard(self) -> int:
        """Up to where the listener knows that its answers arrived."""
        return self._heard

    @property
    def last_id(self) -> int:
        """The last id that is out; the position when nothing is."""
        return self._sent[-1].end if self._sent else self.position

    @property
    def alone(self) -> int:
        """The id of the only message that is out, while messages go out one by one; 0 for none or several."""
        one = self._sent[0] if len(self._sent) == 1 and self.position < self.singly_until else None
        return one.end if one is not None and one.messages == 1 and one.end <= self.singly_until else 0

    def has_room(self, messages: int, size: int) -> bool:
        """Whether a push of that many messages and bytes may go out now. One push always may."""
        if not self._sent:
            return True
        if self.position < self.singly_until:
            return False
        return (
            self._messages + messages <= self.messages_max
            and self._spanned + messages <= self.span_max
            and self._bytes + size <= self.bytes_max
        )

    def is_first(self, sent: Sent) -> bool:
        """Whether nothing before this push is unanswered."""
        return bool(self._sent) and self._sent[0] is sent

    def admit(self, last_id: int, messages: int, size: int) -> Sent:
        """Note a push that covers everything from the last one up to `last_id`."""
        after = self._sent[-1].last_id if self._sent else self.position
        assert last_id > after, "a push must go beyond the one before it"
        sent = Sent(self.run, self.told, last_id, last_id, messages, size)
        self.told = last_id
        self._sent.append(sent)
        self._messages += messages
        self._spanned += messages
        self._bytes += size
        return sent

    def withdraw(self, sent: Sent) -> None:
        """The push that was admitted last did not go out."""
        if sent.run == self.run and self._sent and self._sent[-1] is sent:
            self._sent.pop()
            self.told = sent.told
            self._messages -= sent.messages
            self._forget(sent)

    def skip(self, last_id: int) -> bool:
        """Nothing is wanted of what follows up to `last_id`. True when the position moved.

        While something is out, the last push covers it, too: however long nothing is wanted, it takes no room here.
        """
        if self._sent:
            assert last_id > self._sent[-1].last_id, "what is skipped must lie behind the last push"
            self._sent[-1].last_id = last_id
            return False
        self.position = last_id
        return True

    def finish(self, sent: Sent) -> bool:
        """The push was acknowledged. True when the position moved."""
        if sent.run != self.run or sent.done:
            return False
        sent.done = True
        self._messages -= sent.messages
        before = self.position
        while self._sent and self._sent[0].done:
            first = self._sent.pop(0)
            self._forget(first)
            self.position, self._heard = first.last_id, first.end
        return self.position > before

    def fail(self, sent: Sent, handled: int) -> bool:
        """A listener failed behind `handled`, an id within the push; it ends the run. True when the position moved.

        Raises ProtocolError when `handled` lies outside the push; the run is over all the same.
        """
        if sent.run != self.run:
            return False
        first = self.is_first(sent)
        self.rewind()
        if not sent.told <= handled < sent.end:
            raise ProtocolError(f"a listener says it handled {handled} of a push of {sent.told}…{sent.end}")
        if not first or handled <= self.position:
            return False
        self.position = self._heard = self.told = handled
        return True

    def pass_over(self, last_id: int) -> None:
        """Go on behind `last_id`, which was given up; nothing must be out."""
        assert not self._sent, "what is out may still be acknowledged"
        self.position = max(self.position, last_id)
        self._heard = self.told = max(self._heard, last_id)  # else a listener that holds it would hold it for ever

    def rewind(self) -> None:
        """Forget what is out and begin a new run behind the position."""
        self.run += 1
        self._sent.clear()
        self._messages = self._spanned = self._bytes = 0
        self.told = self._heard

    def _forget(self, sent: Sent) -> None:
        """It is behind the position no more."""
        self._spanned -= sent.messages
        self._bytes -= sent.bytes
