"""Parsing CESQL expressions (CloudEvents SQL, version 1): an operator-precedence parser over `tokens`.

What the standard leaves to chance is refused, with a hint: AND, OR and XOR without brackets between them (its text and
its grammar disagree on their order, and SQL has a third one), and `NOT a = b`, which means `(NOT a) = b` there.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final, NoReturn

from delivery.filters.attributes import wrong_name
from delivery.filters.expressions import (
    LOGIC,
    RANKS,
    UNARY_RANK,
    Attribute,
    Binary,
    Call,
    Exists,
    Expression,
    In,
    Like,
    Literal,
    Unary,
)
from delivery.filters.functions import FUNCTIONS
from delivery.filters.tokens import Token, refused, tokens
from delivery.filters.values import INTEGER_MAX, INTEGER_MIN

TEXT_MAX: Final = 4096
"""Characters of an expression."""
DEPTH_MAX: Final = 32
"""Brackets within brackets, and signs before signs."""
TERMS_MAX: Final = 256
"""Values, names and operators of an expression."""


def parse(text: str) -> Expression:
    """The expression in `text`. Raises InvalidRequest with the place, what is wrong, and what to do."""
    if len(text) > TEXT_MAX:
        raise refused(text, TEXT_MAX, f"an expression has at most {TEXT_MAX} characters", "use fewer or shorter parts")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._tokens = text, tokens(text)
        self._place = self._depth = self._terms = 0
        self._bracketed: Expression | None = None
        """The part that was in brackets, when it was the last one read."""

    def whole(self) -> Expression:
        found = self._expression(0)
        if self._next.kind != "end":
            hint = "join conditions with AND or OR; a quote in a text is \\'"
            self._refuse(self._next, "nothing is expected behind the expression", hint)
        return found

    # -- words

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _is(self, kind: str, *values: str, ahead: int = 0) -> bool:
        token = self._tokens[min(self._place + ahead, len(self._tokens) - 1)]
        return token.kind == kind and (not values or token.value in values)

    def _expect(self, sign: str, hint: str) -> None:
        if not self._is("sign", sign):
            self._refuse(self._next, f"{sign!r} is missing", hint)
        self._take()

    def _refuse(self, token: Token, what: str, hint: str) -> NoReturn:
        raise refused(self._text, token.at, what, hint)

    def _count(self, token: Token) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            self._refuse(token, f"an expression has at most {TERMS_MAX} terms", "use IN for many values")

    # -- grammar

    def _expression(self, least: int) -> Expression:
        """What binds at least as tightly as `least`."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._refuse(self._next, f"an expression is at most {DEPTH_MAX} levels deep", "use fewer brackets")
        left = self._prefix()
        while (operator := self._infix()) is not None and RANKS[operator] >= least:
            left = self._operation(left, operator)
            self._bracketed = None
        self._depth -= 1
        return left

    def _infix(self) -> str | None:
        """The operator that comes next, NOT before LIKE and IN left out."""
        token = self._tokens[self._place + 1] if self._negates else self._next
        return token.value if token.kind in ("sign", "keyword") and token.value in RANKS else None

    @property
    def _negates(self) -> bool:
        return self._is("keyword", "NOT") and self._is("keyword", "LIKE", "IN", ahead=1)

    def _operation(self, left: Expression, operator: str) -> Expression:
        free = left is not self._bracketed
        negated = self._negates
        if negated:
            self._take()
        token = self._take()
        self._count(token)
        if free and operator not in LOGIC and isinstance(left, Unary) and left.operator == "NOT":
            self._refuse(token, f"NOT comes before {operator} and would negate what is left of it alone",
                         f"write NOT (… {operator} …)")  # fmt: skip
        if operator == "LIKE":
            return Like(left, self._pattern(), negated)
        if operator == "IN":
            return In(left, self._set(), negated)
        right = self._expression(RANKS[operator] + 1)
        other = left.operator if free and isinstance(left, Binary) else operator
        if operator in LOGIC and other in LOGIC and other != operator:
            self._refuse(token, f"whether {other} or {operator} comes first is not agreed on",
                         "use brackets: (a AND b) OR c")  # fmt: skip
        return Binary(operator, left, right)

    def _pattern(self) -> str:
        if not self._is("text"):
            self._refuse(self._next, "LIKE needs a text in quotes", "write LIKE 'order%'")
        self._count(self._next)
        return self._take().value

    def _set(self) -> tuple[Expression, ...]:
        self._expect("(", "write IN ('a', 'b')")
        items = [self._expression(0)]
        while self._is("sign", ","):
            self._take()
            items.append(self._expression(0))
        self._expect(")", "close the set, or separate its values by commas")
        return tuple(items)

    def _prefix(self) -> Expression:
        token = self._take()
        self._count(token)
        match token.kind, token.value:
            case "text", value:
                return Literal(value)
            case "integer", value:
                return self._integer(token, int(value))
            case "keyword", value:
                return self._keyword(token, value)
            case "sign", "(":
                return self._brackets()
            case "sign", ("-" | "+") as sign:
                return self._signed(token, sign)
            case "name", _:
                called = self._is("sign", "(") and not token.quoted
                return self._call(token) if called else Attribute(self._attribute(token))
        return self._refuse_value(token)

    def _keyword(self, token: Token, keyword: str) -> Expression:
        match keyword:
            case "TRUE" | "FALSE":
                return Literal(keyword == "TRUE")
            case "NOT":
                return Unary("NOT", self._expression(UNARY_RANK))
            case "EXISTS":
                return Exists(self._attribute(self._take()))
        return self._refuse_value(token)

    def _refuse_value(self, token: Token) -> NoReturn:
        self._refuse(token, "a value or a name is expected", "write such as topic = 'orders'")

    def _brackets(self) -> Expression:
        found = self._expression(0)
        self._expect(")", "close the bracket")
        self._bracketed = found
        return found

    def _signed(self, token: Token, sign: str) -> Expression:
        number = self._next
        if number.kind == "integer" and number.at == token.end:
            self._take()
            return self._integer(number, int(sign + number.value))
        if sign == "+":
            self._refuse(token, "a plus sign can stand before digits alone", "leave it out")
        return Unary("-", self._expression(UNARY_RANK))

    def _integer(self, token: Token, value: int) -> Literal:
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            self._refuse(token, "whole numbers have 32 bits", "compare longer ones as texts, in quotes")
        return Literal(value)

    def _attribute(self, token: Token) -> str:
        if token.kind != "name":
            self._refuse(token, "the name of an attribute is expected", "a name that is a keyword is in `backquotes`")
        if (wrong := wrong_name(token.value)) is not None:
            self._refuse(token, *wrong)
        return token.value

    def _call(self, token: Token) -> Expression:
        name = token.value.upper()
        function = FUNCTIONS.get(name)
        if function is None:
            near = get_close_matches(name, FUNCTIONS, n=1) or sorted(FUNCTIONS)
            self._refuse(token, f"there is no function {name}", f"there is {', '.join(near)}")
        arguments = self._arguments()
        if not function.takes(len(arguments)):
            least, most = len(function.casts) - function.optional - function.repeats, len(function.casts)
            wanted = f"at least {least}" if function.repeats else str(least) if least == most else f"{least} to {most}"
            self._refuse(token, f"{name} takes {wanted} arguments, not {len(arguments)}", "see docs/filters.md")
        return Call(name, arguments)

    def _arguments(self) -> tuple[Expression, ...]:
        self._expect("(", "write the arguments in brackets")
        if self._is("sign", ")"):
            self._take()
            return ()
        found = [self._expression(0)]
        while self._is("sign", ","):
            self._take()
            found.append(self._expression(0))
        self._expect(")", "close the bracket, or separate the arguments by commas")
        return tuple(found)
