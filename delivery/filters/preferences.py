"""The topics and the filter of a subscription as users give them, and as records keep them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, TypeVar

from delivery.filters.rules import FilterSpec, parse_rule, rule_json
from delivery.filters.topics import check_topics

T = TypeVar("T")


class Keep(enum.Enum):
    """Stands for a preference that is left as it is."""

    KEEP = "as it is"

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final = Keep.KEEP
"""The topics or the filter that the subscription has; of a new one, none."""

TopicsGiven = str | Iterable[str] | Keep | None
"""Names, and patterns such as `orders.*`; None for all."""
FilterGiven = FilterSpec | Keep | None
"""See docs/filters.md; None for no filter."""


def topics_asked(given: TopicsGiven) -> tuple[str, ...] | Keep:
    """The checked topics, empty for all. Raises InvalidRequest."""
    return given if isinstance(given, Keep) else check_topics(given)


def filter_asked(given: FilterGiven) -> str | Keep | None:
    """The checked filter as the JSON text of its rule. Raises InvalidRequest: its place and a hint."""
    return given if given is None or isinstance(given, Keep) else rule_json(parse_rule(given))


def kept(asked: T | Keep, present: T) -> T:
    """What is asked for, or what is there."""
    return present if isinstance(asked, Keep) else asked
