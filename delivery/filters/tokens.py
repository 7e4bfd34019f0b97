"""The words of a CESQL expression, with their places. Also where an expression is refused, which is said by place."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from delivery.errors import InvalidRequest
from delivery.filters.expressions import KEYWORDS

Kind = Literal["text", "integer", "name", "keyword", "sign", "end"]

_SIGNS: Final = ("<>", "!=", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",")
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text> '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" )
    | `(?P<quoted>[^`]+)`
    | (?P<word> [A-Za-z0-9_.]+ )
    | (?P<sign> """ + "|".join(map(re.escape, _SIGNS)) + r""" )
    | (?P<end> \Z )
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)  # fmt: skip


class Token(msgspec.Struct, frozen=True):
    """One word. `value` is what a text, a name or a number stands for; keywords are in capitals."""

    kind: Kind
    value: str
    at: int
    """Its first character, counted from 0."""
    end: int
    quoted: bool = False
    """A name in backquotes, which is never that of a function."""


def refused(text: str, at: int, what: str, hint: str) -> InvalidRequest:
    """The error for an expression that cannot be: its place (from 1), the words there, and what to write instead."""
    near = text[at : at + 20].strip() or "the end"
    return InvalidRequest(f"the filter is wrong at character {at + 1}, near {near!r}: {what}; {hint}")


def tokens(text: str) -> list[Token]:
    """The words of an expression, an `end` behind them. Raises InvalidRequest with the place."""
    found: list[Token] = []
    at = 0
    while not found or found[-1].kind != "end":
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found.append(_token(text, match))
        at = match.end()
    return found


def _token(text: str, match: re.Match[str]) -> Token:
    kind = match.lastgroup
    assert kind is not None
    at, end, value = match.start(kind), match.end(), match[kind]
    match kind:
        case "text":
            return Token("text", _unescaped(value), at, end)
        case "quoted":
            return Token("name", value, at - 1, end, quoted=True)
        case "word":
            return _word(text, value, at, end)
        case "sign":
            return Token("sign", "!=" if value == "<>" else value, at, end)
        case _:
            return Token("end", "", at, end)


def _word(text: str, word: str, at: int, end: int) -> Token:
    if word.isdecimal():
        return Token("integer", word, at, end)
    if word.upper() in KEYWORDS:
        return Token("keyword", word.upper(), at, end)
    if word.replace(".", "").isdecimal():
        raise refused(text, at, "there are no fractions", "compare with whole numbers: total > 99")
    return Token("name", word, at, end)


def _unescaped(literal: str) -> str:
    """What stands between the quotes; a backslash that escapes neither the quote nor another one is itself."""
    quote = literal[0]
    return re.sub(rf"\\([\\{quote}])", r"\1", literal[1:-1])


def _unreadable(text: str, at: int) -> InvalidRequest:
    if text[at] in "'\"`":
        return refused(text, at, "this quote is not closed", f"end it with {text[at]}")
    return refused(
        text, at, "this character has no meaning here", "texts are in 'quotes', names with other signs in `backquotes`"
    )
