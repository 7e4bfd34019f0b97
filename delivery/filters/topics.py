"""The topics of a subscription: names, and patterns in which `*` stands for any characters or none.

`orders.*` is every topic that begins with `orders.`, `*.eu` every one that ends with `.eu`, `*` each one, and none.
No name has a `*`, so a pattern is never mistaken for a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from delivery.errors import InvalidRequest
from delivery.filters.like import stars
from delivery.filters.rules import Topics
from delivery.model import NAME_MAX, check_name, check_topic

TOPICS_MAX: Final = 1000
"""Names and patterns of a subscription, or of a read."""


def check_topics(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """The names and patterns of a subscription, sorted, each once; empty for all. Raises InvalidRequest."""
    if given is None:
        return ()
    try:
        names = (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        raise InvalidRequest(f"topics are names, not {str(given)[:40]!r}") from None
    if not 1 <= len(names) <= TOPICS_MAX:
        raise InvalidRequest(f"name 1 to {TOPICS_MAX} topics, or None for all, not {len(names)}")
    return tuple(sorted({check_name("topic", name) if name == "" else check_pattern(name) for name in names}))


def check_pattern(name: str) -> str:
    """`name` if it is one of a topic, a pattern, or the empty name of no topic. Raises InvalidRequest."""
    if "*" not in str(name):
        return check_topic(name)
    if len(name) > NAME_MAX:
        raise InvalidRequest(f"{name[:40]!r}… is no pattern of topics: it has more than {NAME_MAX} characters")
    rest = name.replace("*", "")
    if rest not in (".", ".."):
        check_topic(rest)
    return name


def topic_matcher(topics: Topics) -> Callable[[str], bool]:
    """Whether a topic is among them."""
    names = frozenset(one for one in topics.patterns if "*" not in one)
    patterns = [stars(one) for one in topics.patterns if "*" in one]
    return lambda topic: topic in names or any(matches(topic) for matches in patterns)
