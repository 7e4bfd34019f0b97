"""What others call in the middle of their own work, and which must not stall where it fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from delivery import logs

log = logs.logger(__name__)


class Ends(Protocol):
    """Somebody who can begin anew."""

    def unforeseen(self) -> None:
        """A call failed; nobody else hears of it."""


P = ParamSpec("P")
S = TypeVar("S", bound=Ends)


def guarded(work: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """`work`, but an Exception goes to `unforeseen`, and not to the connection, or the partition, that called."""

    def safely(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            work(self, *args, **kwargs)
        except Exception:
            log.exception("a part of a delivery failed unexpectedly; it begins anew")
            self.unforeseen()

    return wraps(work)(safely)


def tell_safely(tell: Callable[[], object], what: str) -> None:
    """Tell somebody that `what`; whatever comes of it, those behind hear of it, too."""
    try:
        tell()
    except Exception:
        log.exception("somebody could not be told that %s", what)
