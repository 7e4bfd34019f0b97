"""Filters: which messages a subscription takes (docs/filters.md). Plain decisions; nothing here does I/O.

`rules` has the dialects of the CloudEvents Subscriptions API, `parser` the expressions of CESQL, `attributes` what they
can ask of a message. A `Filter` is made of both and of the topics; it judges batches (`outcomes`) and messages
(`judging`, `compiling`), and `explaining` says part by part why.
"""

from __future__ import annotations

from delivery.filters.filter import Filter, filter_of
from delivery.filters.rules import FilterSpec, Topics, parse_rule, rule_json
from delivery.filters.topics import TOPICS_MAX, check_pattern, check_topics

__all__ = [
    "TOPICS_MAX",
    "Filter",
    "FilterSpec",
    "Topics",
    "check_pattern",
    "check_topics",
    "filter_of",
    "parse_rule",
    "rule_json",
]
