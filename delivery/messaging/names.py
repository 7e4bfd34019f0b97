"""Names and properties of topics: what is allowed, and which queue a topic is.

Topic T of namespace N is the queue `N.T`. Neither name may have a dot, so no two topics share a queue, and no topic can
be reached through another namespace. The queue has one partition, which gives the topic its order, unless it is made
with more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from delivery.errors import InvalidRequest
from delivery.model import BODY_BYTES_LIMIT, NAME_MAX, QueueSettings

TTL_DEFAULT_SECONDS: Final = 604_800
TTL_MAX_SECONDS: Final = 2**31 - 1
TRANSACTION_LIFE_MS: Final = 90_000_000
"""The age from which nothing is published in a transaction any more: 25 hours."""
PROPERTIES_BYTES_MAX: Final = 64 * 1024
"""Of all keys and values of a topic: they are kept in ZooKeeper."""

NAMESPACE_PATTERN: Final = "^[A-Za-z0-9_]+$"
TOPIC_PATTERN: Final = "^[A-Za-z0-9_-]+$"
_NAMESPACE: Final = re.compile(NAMESPACE_PATTERN, re.ASCII)
_TOPIC: Final = re.compile(TOPIC_PATTERN, re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,15}\Z", re.ASCII)


class Properties(msgspec.Struct, frozen=True):
    """What a caller wants of a topic."""

    ttl_seconds: int
    others: dict[str, str]
    """Kept as they are; neither `ttl` nor `generation` is among them."""


def check_namespace(namespace: str) -> str:
    """`namespace` if it may name one. Raises InvalidRequest."""
    if not _NAMESPACE.fullmatch(namespace) or len(namespace) > NAME_MAX - 2:
        raise InvalidRequest(f"{namespace[:60]!r} is no namespace: use the characters A-Z a-z 0-9 _")
    return namespace


def queue_of(namespace: str, topic: str) -> str:
    """The name of the queue that a topic is. Raises InvalidRequest for names that cannot be."""
    check_namespace(namespace)
    if not _TOPIC.fullmatch(topic):
        raise InvalidRequest(f"{topic[:60]!r} is no topic: use the characters A-Z a-z 0-9 _ -")
    queue = f"{namespace}.{topic}"
    if len(queue) > NAME_MAX:
        raise InvalidRequest(f"namespace and topic together have at most {NAME_MAX - 1} characters")
    return queue


def queue_prefix(namespace: str) -> str:
    """What the queues of a namespace's topics begin with, and no others. Raises InvalidRequest."""
    return f"{check_namespace(namespace)}."


def read_properties(given: Mapping[str, str]) -> Properties:
    """Properties as a caller gave them: a whole `ttl` in seconds, or seven days; any `generation` is ignored.

    Raises InvalidRequest.
    """
    others = {key: value for key, value in given.items() if key not in ("ttl", "generation")}
    try:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in others.items())
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can write it, and nothing can hold it
        raise InvalidRequest("a property is no text: it has half a character") from None
    if size > PROPERTIES_BYTES_MAX:
        raise InvalidRequest(f"the properties take {size} bytes; the limit is {PROPERTIES_BYTES_MAX}")
    text = given.get("ttl", str(TTL_DEFAULT_SECONDS))
    ttl = int(text) if _INTEGER.match(text) else 0
    if not 1 <= ttl <= TTL_MAX_SECONDS:
        raise InvalidRequest(f"ttl must be a whole number of seconds, 1 to {TTL_MAX_SECONDS}, not {text[:40]!r}")
    return Properties(ttl, others)


def shown_properties(
    generation: int, ttl_seconds: int, others: Mapping[str, str], partitions: int = 1
) -> dict[str, str]:  # fmt: skip
    """The properties of a topic as a caller sees them; of its partitions only where there are several."""
    found = {**others, "ttl": str(ttl_seconds), "generation": str(generation)}
    return found if partitions == 1 else {**found, "partitions": str(partitions)}


def queue_settings(ttl_seconds: int, partitions: int = 1) -> QueueSettings:
    """What a topic's queue is made with.

    It keeps messages for a transaction's longest life beyond their ttl: bodies that were stored early in one must still
    be there when the topic shows them, and polls judge the age by themselves.
    """
    kept = ttl_seconds + TRANSACTION_LIFE_MS // 1000
    return QueueSettings(partitions=partitions, ttl_seconds=kept, body_bytes_max=BODY_BYTES_LIMIT)
