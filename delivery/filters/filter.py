"""A compiled filter: what a region host asks of each batch that it scans (`batch.select`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress

from delivery.batch import Batch, Header
from delivery.batch.layout import HEADERS, KEYS
from delivery.batch.select import topics_in
from delivery.filters.attributes import Row, is_header
from delivery.filters.judging import judge
from delivery.filters.outcomes import Known, decide
from delivery.filters.rules import All, Rule, Topics, attributes_of, parse_rule
from delivery.filters.topics import check_pattern

_DECISIONS_KEPT = 4096
_FILTERS_KEPT = 1024
_REFUSED, _TAKEN, _OPEN = range(3)
"""What a topic decides: an open one leaves it to the message."""
_MARKS = {False: _REFUSED, True: _TAKEN, None: _OPEN}
_SEARCHED = 8
"""Searching pays where no more than one of so many messages is not refused."""


class Filter:
    """Decides for whole batches first, by what header and dictionary tell; message by message where that is not enough.

    Decisions are remembered by topics and flags: most batches of a queue have the same.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.looks_inside = bool(attributes_of(rule) - {"topic", "partition"})
        """Whether messages may have to be evaluated one by one, which takes microseconds for each."""
        self._judge = judge(rule)
        self._of_batch = lru_cache(_DECISIONS_KEPT)(self._decide_batch)
        self._of_topic = lru_cache(_DECISIONS_KEPT)(self._decide_topic)

    def __repr__(self) -> str:
        return f"<Filter {self.rule}>"

    def decide(self, header: Header, dictionary: bytes) -> bool | None:
        """Whether it takes all messages or none of a batch; None when that must be looked at one by one."""
        return self._of_batch(dictionary, header.flags & (KEYS | HEADERS), header.partition)

    def refuses(self, header: Header, dictionary: bytes) -> bool:
        """Whether it takes nothing of a batch of which only this much is known. From any thread."""
        return self.decide(header, dictionary) is False

    def choose(self, batch: Batch) -> Sequence[int]:
        """The places of the messages that it takes, rising."""
        header = batch.header
        flags = header.flags & (KEYS | HEADERS)
        decided = [self._of_topic(topic, flags, header.partition) for topic in batch.topics]
        marks = _marks(batch.topic_index, bytes(_MARKS[one] for one in decided))
        places = _marked(marks)
        if None not in decided:
            return places
        row, holds, taken = Row.of(batch), self._judge, []
        for place in places:
            row.at = place
            if marks[place] == _TAKEN or holds(row):
                taken.append(place)
        return taken

    def takes(self, row: Row) -> bool:
        """Whether it takes the message at which `row` is, all of which is known."""
        return self._judge(row)

    def _decide_batch(self, dictionary: bytes, flags: int, partition: int) -> bool | None:
        decided = {self._of_topic(topic, flags, partition) for topic in topics_in(dictionary)}
        return decided.pop() if len(decided) == 1 else None

    def _decide_topic(self, topic: str, flags: int, partition: int) -> bool | None:
        row = Row(partition, [0], [topic], [None], [b""], [b""])
        return decide(self.rule, row, _known(flags))


def _marks(index: Sequence[int], of_topic: bytes) -> bytes:
    """What is decided of each message, by its topic's place."""
    if isinstance(index, bytes):
        return index.translate(of_topic.ljust(256, b"\0"))
    return bytes(map(of_topic.__getitem__, index))


def _marked(marks: bytes) -> list[int]:
    """The places that are not refused. Where these are few they are searched for, a hundred times as fast."""
    if (len(marks) - marks.count(_REFUSED)) * _SEARCHED > len(marks):
        return list(compress(range(len(marks)), marks))
    found, wanted = [], marks.replace(bytes((_OPEN,)), bytes((_TAKEN,)))
    at = wanted.find(_TAKEN)
    while at >= 0:
        found.append(at)
        at = wanted.find(_TAKEN, at + 1)
    return found


def _known(flags: int) -> Known:
    """What the flags of a batch tell of every message in it, apart from topic and partition: what is missing."""

    def known(name: str) -> bool:
        if name == "key":
            return not flags & KEYS
        return name in ("topic", "partition") or (is_header(name) and not flags & HEADERS)

    return known


@lru_cache(_FILTERS_KEPT)
def filter_of(topics: tuple[str, ...], rule_text: str | None) -> Filter | None:
    """The filter of a subscription's topics and of its rule as JSON; None when all is taken. Raises InvalidRequest.

    Remembered: the workers of a subscription share it, and reading a record, which checks it, costs nothing more.
    """
    rules = rules_of(topics, rule_text)
    if not rules:
        return None
    return Filter(rules[0] if len(rules) == 1 else All(rules))


def rules_of(topics: tuple[str, ...], rule_text: str | None) -> tuple[Rule, ...]:
    """The rules that all must hold. Raises InvalidRequest."""
    patterns = tuple(map(check_pattern, topics))
    return (*([Topics(patterns)] if patterns else []), *([parse_rule(rule_text)] if rule_text else []))
