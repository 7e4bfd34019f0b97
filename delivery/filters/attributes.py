"""What filters can ask of a message, by name.

    topic          text, empty without a topic
    key            text; missing without a key
    partition      a number
    id             text, as it is printed: 1732165000000-12
    time           text, when the host took it: 2024-11-21T05:36:40.000Z
    body           text: the whole body
    body.A.B       in a JSON body, what is under A, then B; a number counts in a list: body.items.0.price
    header.NAME    text: the header NAME
    NAME           any other name: the header NAME

Keys, headers and bodies are bytes: those that are not UTF-8 have no text, and an expression that needs it fails. What
is null in a JSON body is missing there, objects and lists are their JSON text, and in a body that is no JSON all is
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from delivery.batch import Batch
from delivery.filters.values import Unfit, Value
from delivery.ids import MessageId
from delivery.model import tolerant_headers

FIXED: Final = ("topic", "key", "partition", "id", "time", "body")
NAME_MAX: Final = 512

BODY: Final = "body."
HEADER: Final = "header."

_MISSING: Any = object()


class Row:
    """The columns of a batch, and which message of it is looked at: `at`. Headers and JSON are read when asked for."""

    __slots__ = (
        "_headers", "_headers_at", "_json", "_json_at", "at", "blocks", "bodies", "ids", "keys", "partition", "topics",
    )  # fmt: skip

    def __init__(
        self, partition: int, ids: Sequence[int], topics: Sequence[str], keys: Sequence[bytes | None],
        blocks: Sequence[bytes], bodies: Sequence[bytes],
    ) -> None:  # fmt: skip
        self.partition, self.ids, self.topics, self.keys = partition, ids, topics, keys
        self.blocks, self.bodies = blocks, bodies
        self.at = 0
        """The place of the message in its batch."""
        self._headers_at = self._json_at = -1
        self._headers: dict[str, bytes] = {}
        self._json: Any = _MISSING

    @classmethod
    def of(cls, batch: Batch) -> Row:
        """The rows of a batch."""
        columns = batch.columns()
        return cls(batch.header.partition, batch.ids(), columns.topics, columns.keys, columns.blocks, columns.bodies)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of the message; none where a publisher wrote nonsense."""
        if self._headers_at != self.at:
            self._headers_at = self.at
            block = self.blocks[self.at]
            self._headers = tolerant_headers(block) if block else {}
        return self._headers

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the body holds
        """The body, decoded; `_MISSING` when it is no JSON."""
        if self._json_at != self.at:
            self._json_at = self.at
            try:
                self._json = msgspec.json.decode(self.bodies[self.at])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._json = _MISSING
        return self._json


Getter = Callable[[Row], Value]
"""Raises Unfit when the message lacks the attribute, or it is no text."""


def wrong_name(name: str) -> tuple[str, str] | None:
    """What is wrong with the name of an attribute, and a hint; None when nothing is."""
    if not name or len(name) > NAME_MAX:
        return f"the name of an attribute has 1 to {NAME_MAX} characters", f"use {', '.join(FIXED)} or a header's name"
    if name == HEADER:
        return "header. needs the name of a header behind it", "write header.type"
    if name.startswith(BODY) and "" in name.split("."):
        return "a path into the body has names between its dots", "write body.order.total"
    return None


def getter(name: str) -> Getter:
    """How to get an attribute."""
    if name in _FIXED:
        return _FIXED[name]
    if name.startswith(BODY):
        return _body_getter(name)
    header = header_of(name)

    def get(row: Row) -> Value:
        value = row.headers.get(header)
        if value is None:
            raise Unfit(f"there is no header {header}")
        return _text(value, "header", header)

    return get


def header_of(name: str) -> str:
    """The header that an attribute is, which is neither one of the fixed ones nor in the body."""
    return name.removeprefix(HEADER)


def is_header(name: str) -> bool:
    """Whether an attribute is a header."""
    return name not in FIXED and not name.startswith(BODY)


def exists(name: str) -> Callable[[Row], bool]:
    """How to find out whether a message has an attribute."""
    if is_header(name):
        header = header_of(name)
        return lambda row: header in row.headers
    if name == "key":
        return lambda row: row.keys[row.at] is not None
    if name.startswith(BODY):
        path = name.split(".")[1:]
        return lambda row: _inside(row.json, path) is not _MISSING
    return lambda _: True


def _body_getter(name: str) -> Getter:
    path = name.split(".")[1:]

    def get(row: Row) -> Value:
        found = _inside(row.json, path)
        if found is _MISSING:
            raise Unfit("the body is no JSON" if row.json is _MISSING else f"there is no {name}")
        return _value(found)

    return get


def _inside(value: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - whatever a body holds
    for name in path:
        if isinstance(value, dict):
            value = value.get(name, _MISSING)
        elif isinstance(value, list) and name.isdecimal() and len(name) < 10 and int(name) < len(value):
            value = value[int(name)]
        else:
            return _MISSING
    return _MISSING if value is None else value


def _value(found: Any) -> Value:  # noqa: ANN401 - the same
    return found if isinstance(found, bool | int | float | str) else msgspec.json.encode(found).decode()


def _text(data: bytes, kind: str, name: str = "") -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Unfit(f"{kind} {name}".strip() + " is no text: it is not UTF-8") from None


def _key(row: Row) -> Value:
    key = row.keys[row.at]
    if key is None:
        raise Unfit("the message has no key")
    return _text(key, "the key")


def _time(row: Row) -> Value:
    return MessageId(row.ids[row.at]).time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_FIXED: Final[dict[str, Getter]] = {
    "topic": lambda row: row.topics[row.at],
    "key": _key,
    "partition": lambda row: row.partition,
    "id": lambda row: str(MessageId(row.ids[row.at])),
    "time": _time,
    "body": lambda row: _text(row.bodies[row.at], "the body"),
}
assert set(_FIXED) == set(FIXED)
