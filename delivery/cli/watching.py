"""`--watch`: the same view again and again, in place on a terminal, one after another elsewhere, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn, Self, TypeVar

import typer

from delivery.cli.output import tell
from delivery.errors import HootError

_EVERY_SECONDS = 2.0

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every two seconds, until Ctrl-C.")]
T = TypeVar("T")


def watching(look: Callable[[], T], lines: Callable[[T], Sequence[str]]) -> NoReturn:
    """Show what `look` finds. What cannot be had now is told, with what was seen last; other errors end it."""
    seen: Sequence[str] = []
    with _Screen() as screen:
        while True:
            try:
                seen = lines(look())
                screen.show(seen)
            except HootError as error:
                if not error.retryable:
                    raise
                screen.complain(f"cannot look now: {error.message}", seen)
            time.sleep(_EVERY_SECONDS)


class _Screen:
    """A place on the terminal; elsewhere plain output."""

    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(auto_refresh=False, vertical_overflow="crop") if sys.stdout.isatty() else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, lines: Sequence[str]) -> None:
        """Show them instead of those before."""
        from rich.text import Text

        if self._live is None:
            print("\n".join(lines), flush=True)
        else:
            self._live.update(Text.from_ansi("\n".join(lines), no_wrap=True), refresh=True)

    def complain(self, text: str, lines: Sequence[str]) -> None:
        """Say what is the matter, above what was there."""
        if self._live is None:
            tell(text)
        else:
            self.show([text, "", *lines])
