"""What is known of one partition of one subscription at one moment: the plain facts that a verdict is made of.

Times are in milliseconds since 1970 by the clock of whoever made the observation, so that nobody's clock has to agree
with it; 0 stands for never, or for nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Stage = Literal["delivering", "starting", "no_listener", "pulled", "no_owner", "host_unreachable"]
"""How far the partition has come towards its listener: a host delivers it; its owner does not do so yet; nobody is
attached; who is attached reads for itself; nobody owns it; its owner does not answer. All but the first two only a
client can know."""


class Callback(msgspec.Struct, frozen=True, rename="camel"):
    """A callback that runs in a subscriber, as that tells."""

    name: str
    """Of the function; empty for none: the message waits to be acknowledged by hand."""
    queue: str
    partition: int
    message: int
    """Its id; 0 when it cannot be told."""
    seconds: float
    """Since the push that it belongs to was begun."""
    moving: bool
    """Whether another message had its turn while the subscriber was looked at: it is slow, and not stuck."""
    stack: str
    """Where it is now, as a traceback shows it."""
    held: bool = False
    """It is none: the application wants no messages now."""


class Observation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One partition of one subscription. `now_ms` is when it was taken."""

    partition: int
    now_ms: int
    stage: Stage = "delivering"
    host: str = ""
    """The owner's host:port."""
    trouble: str = ""
    """Why it is not delivered, or what was given up is not kept: the last error of whoever tried."""
    began_ms: int = 0
    """When its owner began to deliver it."""

    position: int = 0
    """Everything up to this id is acknowledged, given up or parked."""
    heard: int = 0
    """The last id that the listener was sent or was to begin after; up to `scanned` nothing was wanted."""
    scanned: int = 0
    """What the host has looked at."""
    last: int = 0
    """The last id that is complete."""
    lag: int | None = None
    """Messages above the position, whatever the filter says of them; None when nobody counted."""
    lag_bytes: int | None = None
    """What they take, by the mean size of the partition's messages."""
    oldest_ms: int = 0
    """The time of the first message above the position."""
    trend: float | None = None
    """Seconds that the lag grows each second, negative when it shrinks; None when too little was acknowledged."""

    out: int = 0
    """Messages that are pushed and not answered."""
    out_since_ms: int = 0
    """Since when the first push that is out waits to be answered, with nothing before it."""
    full: bool = False
    """More is there than window or connection take."""
    limited: bool = False
    """More is there than its own limits, or a pause, let out."""
    delivered_ms: int = 0
    acknowledged_ms: int = 0
    moved_ms: int = 0
    """When the position moved last: because of an acknowledgement, or because nothing was wanted."""
    checkpointed_ms: int = 0
    """When a position was saved last by this host."""
    redelivered: int = 0
    """Messages that this owner pushed again."""

    filtered: bool = False
    """Whether it takes only some topics, or has a filter."""
    paced: bool = False
    """Whether it comes at its own pace: a replay, or while the newest message of each key is looked for."""
    reading_ms: int = 0
    """Since when a read of the store is not answered."""
    shelving_ms: int = 0
    """Since when a message that was given up waits to become a dead letter."""
    failing: int = 0
    """The message that everything waits for since it failed."""
    failures: int = 0
    """Of it, or of the parked message that failed most."""
    error: str = ""
    """Its last."""
    again_ms: int = 0
    """When it comes again."""
    parked: int = 0
    """Messages that are parked."""
    parked_keys: int = 0
    parking_full: bool = False
    """No more can be parked, so that the partition waits."""

    unreachable_ms: int = 0
    """Since when there is no connection to the listener, or it does not say that it lives."""
    unreachable: str = ""
    """Why."""
    callback: Callback | None = None
    """What runs in the subscriber, when it was asked and could tell."""
    paused_ms: int = 0
    """Since when the subscription is paused."""
    paused_until_ms: int = 0
    """When that ends by itself."""
    paused_by: str = ""
    """Who did that, if it was not an operator."""
    waiting_for: int = 0
    """The transaction in progress that everything waits for."""
    waiting_ms: int = 0
    """Since when; without a transaction, since when nobody tells what is committed."""
    waiting_trouble: str = ""
    """Why nobody does."""
    member: str = ""
    """Of several members who share the partition, the one that is worst off: what is told of a listener is its."""
    holding: bool = False
    """The queue limits its backlog, and publishers wait for this subscription."""
    zookeeper_lost_ms: int = 0
    """Since when whoever took the observation has no connection to ZooKeeper."""

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest message that is not acknowledged; 0 when all is."""
        return max(0.0, (self.now_ms - self.oldest_ms) / 1000) if self.oldest_ms else 0.0
