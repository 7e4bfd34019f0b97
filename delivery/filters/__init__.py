"""Filters: which messages a subscription takes (docs/filters.md). Plain decisions; nothing here does I/O.

`rules` has the dialects of the CloudEvents Subscriptions API, `parser` the expressions of CESQL, `attributes` what they
can ask of a message. A `Filter` is made of both and of the topics; it judges batches (`outcomes`) and messages
(`judging`, `compiling`), and `explaining` says part by part why.
"""

from __future__ import annotations

from delivery.filters.filter import Filter, filter_of
from delivery.filters.preferences import KEEP, FilterGiven, Keep, TopicsGiven, filter_asked, kept, topics_asked
from delivery.filters.rules import FilterSpec, Topics, parse_rule, rule_json
from delivery.filters.topics import TOPICS_MAX, check_pattern, check_topics

__all__ = [
    "KEEP",
    "TOPICS_MAX",
    "Filter",
    "FilterGiven",
    "FilterSpec",
    "Keep",
    "Topics",
    "TopicsGiven",
    "check_pattern",
    "check_topics",
    "filter_asked",
    "filter_of",
    "kept",
    "parse_rule",
    "rule_json",
    "topics_asked",
]
