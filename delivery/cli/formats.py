r"""How a message is printed: `--format text | json | body | TEMPLATE`.

    text      time, id, partition, topic, key and body in one line, control characters escaped
    json      one object in one line (the fields are those of `message_fields`)
    body      the bytes of the body and a line end
    TEMPLATE  any text with {id} {number} {time} {queue} {partition} {topic} {key} {body} {headers} {header.NAME};
              {{ and }} are braces, and \n \t \0 \\ are read as in most languages. A line end follows.

A body is bytes. In JSON, bytes that are UTF-8 become a string and others become `{"base64": "…"}`.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import typer

from delivery.cli.output import NOTHING, moment
from delivery.model import Message, tolerant_headers

Render = Callable[[Message], bytes]

_PIECE = re.compile(r"\{\{|\}\}|\{([a-z]+)(?:\.([^{}]*))?\}|\\[nt0\\]|([{}])")
_ESCAPES = {"{{": b"{", "}}": b"}", "\\n": b"\n", "\\t": b"\t", "\\0": b"\0", "\\\\": b"\\"}
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON holds them: a string if they are UTF-8, else `{"base64": …}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def message_fields(message: Message) -> dict[str, Any]:
    """The JSON form of a message."""
    return {
        "queue": message.queue,
        "partition": message.partition,
        "id": str(message.id),
        "time": moment(message.id.timestamp_ms),
        "topic": message.topic or None,
        "key": text_or_base64(message.key),
        "headers": {name: text_or_base64(value) for name, value in tolerant_headers(message.header_block).items()},
        "body": text_or_base64(message.body),
    }


def printable(data: bytes) -> str:
    """Bytes for a terminal: what is not UTF-8 or could steer the terminal is escaped."""
    text = data.decode(errors="backslashreplace")
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    # A backslash alone is common (Windows paths, JSON): it is left as it is.
    return character if character == "\\" else character.encode("unicode_escape").decode()


def _as_text(message: Message) -> bytes:
    key = printable(message.key) if message.key is not None else NOTHING
    start = f"{moment(message.id.timestamp_ms)}  {message.id}  {message.partition}"
    return f"{start}  {message.topic or NOTHING}  {key}  {printable(message.body)}".encode()


def _as_json(message: Message) -> bytes:
    return json.dumps(message_fields(message), ensure_ascii=False).encode()


_FIELDS: Mapping[str, Render] = {
    "id": lambda m: str(m.id).encode(),
    "number": lambda m: str(m.number).encode(),
    "time": lambda m: str(moment(m.id.timestamp_ms)).encode(),
    "queue": lambda m: m.queue.encode(),
    "partition": lambda m: str(m.partition).encode(),
    "topic": lambda m: m.topic.encode(),
    "key": lambda m: m.key or b"",
    "body": lambda m: m.body,
    "headers": lambda m: json.dumps(message_fields(m)["headers"], ensure_ascii=False).encode(),
}
_NAMED: Mapping[str, Render] = {"text": _as_text, "json": _as_json, "body": lambda m: m.body}


def render(form: str) -> Render:
    """The function that prints a message in a format. Raises typer.BadParameter when the format makes no sense."""
    if form in _NAMED:
        return _NAMED[form]
    if "{" not in form:
        raise typer.BadParameter(f"{form!r}: use text, json, body, or a template such as '{{id}} {{body}}'")
    pieces = _compile(form)
    return lambda message: b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in pieces)


def _compile(template: str) -> list[bytes | Render]:
    pieces: list[bytes | Render] = []
    end = 0
    for found in _PIECE.finditer(template):
        pieces.append(template[end : found.start()].encode())
        pieces.append(_ESCAPES[found[0]] if found[0] in _ESCAPES else _field(found))
        end = found.end()
    pieces.append(template[end:].encode())
    return [piece for piece in pieces if piece != b""]


def _field(found: re.Match[str]) -> Render:
    name, detail = found[1], found[2]
    if name == "header" and detail:
        return lambda message: tolerant_headers(message.header_block).get(detail, b"")
    if name in _FIELDS and detail is None:
        return _FIELDS[name]
    known = ", ".join([*_FIELDS, "header.NAME"])
    raise typer.BadParameter(f"{found[0]!r} is no field of a message; there are {known}, and {{{{ for a brace")


class Printer:
    """Writes messages to standard output, one after another.

    A terminal sees each at once. Elsewhere lines are gathered, and `flush` sends them on when the source is idle.
    """

    def __init__(self, form: str) -> None:
        self._render = render(form)
        self._out = sys.stdout.buffer
        self._at_once = sys.stdout.isatty()
        self.count = 0

    def show(self, message: Message) -> None:
        """Print one message. Raises BrokenPipeError when nobody reads any more."""
        self._out.write(self._render(message) + b"\n")
        self.count += 1
        if self._at_once:
            self._out.flush()

    def flush(self) -> None:
        """Hand over what was gathered."""
        self._out.flush()
