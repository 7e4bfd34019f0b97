"""An intruder: asks hosts and subscribers, all through a run, for what they must refuse, and notes what they answer."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from delivery.errors import HootError, ProtocolError
from delivery.rpc.protocol import decode_reply, load_idl
from tests.chaos.children import Child
from tests.chaos.cluster import QUEUE, SUBSCRIPTIONS, Cluster
from tests.chaos.history import History, body_of
from tests.hosting import batch
from tests.integration.background import Background
from tests.integration.embedded import NEVER
from tests.integration.hostile import Peer, framed, proper

EVERY_SECONDS: Final = 0.2
ANSWER_SECONDS: Final = 3.0
CLOSED: Final = "closed"
TOLD: Final = b"a connection was closed"
_TOLD_SECONDS: Final = 0.2
"""In which the log has what ended a connection."""

BODY: Final = body_of("intruder", 100)
"""Whoever sees it anywhere has taken what was refused: nobody put it."""
_LISTENER: Final[Any] = load_idl("subscriber")
_STATUS: Final = {_LISTENER.OK: "OK", _LISTENER.STALE: "STALE", _LISTENER.UNKNOWN: "UNKNOWN"}


class Attack(NamedTuple):
    """Something to be refused: the frame, and the answer that is due."""

    kind: str
    frame: bytes
    due: str
    service: str = "RegionHost"
    method: str = "publish"


def _publish(kind: str, due: str, data: bytes, queue: str = QUEUE, partition: int = 0) -> Attack:
    return Attack(kind, proper("RegionHost", "publish", queue, partition, data, None), due)


def _push(kind: str, due: str, *, name: str, partition: int, data: bytes | None) -> Attack:
    push = _LISTENER.Push(
        queue=QUEUE, subscription=name, partition=partition, epoch=1 << 40, run=0, after=0, batches=data
    )
    return Attack(kind, proper("Listener", "push", push), due, "Listener", "push")


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


TO_HOSTS: Final = (
    _publish("damaged batch", "corrupt_record", _flipped(batch(BODY))),
    _publish("batch of another partition", "invalid_request", batch(BODY, partition=1)),
    _publish("publish to a queue that is not there", "unknown_queue", batch(BODY), "nowhere"),
    _publish(
        "publish to a partition that is not there", "unknown_partition", batch(BODY, partition=999), partition=999
    ),
    Attack("frame of two gigabytes to a host", struct.pack(">i", 2**31 - 1) + BODY, CLOSED),
    Attack("frame of noise to a host", framed(BODY), CLOSED),
)
TO_SUBSCRIBERS: Final = (
    _push("push for another subscription", "UNKNOWN", name="nobody", partition=0, data=batch(BODY)),
    _push(
        "push of a partition that is not there", "UNKNOWN", name=SUBSCRIPTIONS[0].name, partition=999, data=batch(BODY)
    ),
    _push("push without a batch", "protocol_error", name=SUBSCRIPTIONS[0].name, partition=0, data=None),
    Attack("frame of noise to a subscriber", framed(BODY), CLOSED),
)


class Intruder(Background):
    """A context manager around the time to intrude."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._history = History(cluster.history("intruder"))
        self._random = random.Random("intruder")

    def work(self) -> None:
        cluster = self._cluster
        while not self._stop.wait(EVERY_SECONDS):
            host = self._random.choice(list(cluster.hosts))
            self._try(self._random.choice(TO_HOSTS), cluster.hosts[host], cluster.host_ports[host])
            one = SUBSCRIPTIONS[0].name
            self._try(self._random.choice(TO_SUBSCRIBERS), cluster.subscribers[one], cluster.subscriber_ports[one])

    def _try(self, attack: Attack, child: Child, port: int) -> None:
        outcome = attempt(attack, port, lambda: child.told(TOLD))
        words = (word.replace(" ", "-") for word in (attack.kind, attack.due, outcome))
        self._history.note("attempt", *words)


def attempt(attack: Attack, port: int, told: Callable[[], int]) -> str:
    """What is answered: a code, a listener's status, `closed`, or `untold` when the log (`told` counts what it says of
    such) does not say why; `put-off` for what may be asked again, `unanswered` when there is no answer."""
    before = told()
    try:
        with Peer(port, ANSWER_SECONDS) as peer:
            peer.send(attack.frame, more=attack.due != CLOSED)
            answer = _answer(peer)
    except OSError:
        return "unanswered"
    if answer is None:
        return _ended(before, told)
    return _named(attack, answer)


def _ended(before: int, told: Callable[[], int]) -> str:
    for _ in range(10):
        if told() > before:
            return CLOSED
        NEVER.wait(_TOLD_SECONDS / 10)
    return "untold"


def _answer(peer: Peer) -> bytes | None:
    """A frame's content; None when the connection ends before it is whole. Raises TimeoutError."""
    received = b""
    while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
        try:
            more = peer.socket.recv(65_536)
        except ConnectionError:
            more = b""
        if not more:
            return None
        received += more
    return received[4:]


def _named(attack: Attack, answer: bytes) -> str:
    try:
        reply = decode_reply(attack.service, attack.method, 1, memoryview(answer))
    except ProtocolError:
        return "nonsense"
    if isinstance(reply, HootError):
        return "put-off" if reply.retryable else reply.code
    return _STATUS.get(getattr(reply, "status", None), "taken")
