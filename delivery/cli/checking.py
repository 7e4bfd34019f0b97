"""`hoot check`: one line and an exit status as monitoring plugins give them.

Exit status: 0 fine, 1 warning, 2 critical, 3 unknown, a wrong command line included. The line ends with
`| lag=… age=…`, the messages and the seconds of the subscription that is furthest behind, with their thresholds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn

import msgspec
import typer
from typer.core import TyperCommand

from delivery.cli import options
from delivery.cli.errors import USAGE_ERROR, failure
from delivery.cli.output import span
from delivery.cli.verdicts import limits, words
from delivery.errors import HootError, MetadataUnavailable

if TYPE_CHECKING:
    from delivery.client import SubscriptionInfo

Status = Literal["OK", "WARNING", "CRITICAL", "UNKNOWN"]
CODES: dict[Status, int] = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
_STATUSES: dict[str, Status] = {"fine": "OK", "warning": "WARNING", "critical": "CRITICAL"}
_TOLD = 3
"""Complaints in one line; more are counted."""


class Thresholds(msgspec.Struct, frozen=True):
    """From which value on it is a warning, and from which on critical."""

    warning: float
    critical: float | None = None

    def judge(self, value: float) -> Status:
        """What a value is."""
        if self.critical is not None and value >= self.critical:
            return "CRITICAL"
        return "WARNING" if value >= self.warning else "OK"


class Complaint(NamedTuple):
    """What is not fine about one subscription."""

    status: Status
    text: str


class Check(TyperCommand):
    """A command whose wrong use is `unknown`, for 2 would be taken for critical."""

    def make_context(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - typer does not export the types
        """As the base, but for the exit status."""
        try:
            return super().make_context(*args, **more)
        except USAGE_ERROR as error:
            _end("UNKNOWN", failure(error).message)


def _thresholds(text: str, parse: Callable[[str], float]) -> Thresholds:
    warning, colon, critical = text.partition(":")
    found = Thresholds(parse(warning), parse(critical) if colon else None)
    if found.critical is not None and found.critical < found.warning:
        raise typer.BadParameter(f"{text[:40]!r}: critical comes after warning, as in 100:1000")
    return found


def _lag(text: str) -> Thresholds:
    return _thresholds(text, _count)


def _count(text: str) -> float:
    if not text.strip().isdecimal():
        raise typer.BadParameter(f"{text[:40]!r} is no number of messages")
    return float(text)


def _age(text: str) -> Thresholds:
    return _thresholds(text, options.parse_span)


def check(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this subscription.", show_default="all")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", metavar="QUEUE", help="Only of this queue.", show_default="all")
    ] = None,
    lag: Annotated[
        Thresholds | None, typer.Option(parser=_lag, metavar="WARN[:CRIT]", help="Messages behind.", show_default=False)
    ] = None,
    oldest: Annotated[
        Thresholds | None,
        typer.Option("--age", parser=_age, metavar="WARN[:CRIT]", help="Age of the oldest one.", show_default=False),
    ] = None,
    stuck_after: options.StuckAfter = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
) -> None:
    """Check subscriptions for a monitor: exit status 0 fine, 1 warning, 2 critical, 3 unknown, and one line.

    What is wrong with a subscription is its worst partition's verdict (docs/verdicts.md), or that it is behind by what
    --lag and --age say: 1000:10000 warns from 1,000 messages on, 1m:10m from a minute on.
    """
    from delivery.client import connect

    try:
        with connect(zookeeper) as client:
            found = client.subscription_infos(queue, name, limits=limits(stuck_after))
    except MetadataUnavailable as error:
        _end("CRITICAL", f"ZooKeeper lost: {error.message}")
    except HootError as error:
        _end("UNKNOWN", error.message)
    if name is not None and not found:
        _end("UNKNOWN", f"there is no subscription {name!r}{f' of queue {queue!r}' if queue else ''}")
    complaints = [one for info in found for one in complaints_about(info, lag, oldest)]
    complaints.sort(key=lambda one: -CODES[one.status])
    status = complaints[0].status if complaints else "OK"
    _end(status, _summary(found, complaints), _measured(found, lag, oldest))


def complaints_about(info: SubscriptionInfo, lag: Thresholds | None, oldest: Thresholds | None) -> list[Complaint]:
    """What is not fine about a subscription."""
    where, found = f"{info.queue}/{info.subscription}", []
    if (worst := info.worst) is not None:
        text = f"{where} partition {worst.partition}: {words(worst.verdict)}: {worst.verdict.text}"
        found.append(Complaint(_STATUSES[worst.verdict.level], text))
    if lag is not None and info.lag is not None:
        found.append(Complaint(lag.judge(info.lag), f"{where} is {info.lag} messages behind"))
    if oldest is not None and info.lag_seconds is not None:
        found.append(Complaint(oldest.judge(info.lag_seconds), f"{where} is {span(info.lag_seconds)} behind"))
    return [one for one in found if one.status != "OK"]


def _summary(found: Sequence[SubscriptionInfo], complaints: Sequence[Complaint]) -> str:
    if complaints:
        more = len(complaints) - _TOLD
        return "; ".join(one.text for one in complaints[:_TOLD]) + (f"; and {more} more" if more > 0 else "")
    counted = Counter(words(one.worst.verdict) for one in found if one.worst is not None)
    return f"subscriptions: {len(found)}" + "".join(f", {count} {name}" for name, count in counted.items())


def _measured(found: Sequence[SubscriptionInfo], lag: Thresholds | None, oldest: Thresholds | None) -> str:
    most = max((one.lag or 0 for one in found), default=0)
    furthest = max((one.lag_seconds or 0.0 for one in found), default=0.0)
    return f"lag={most}{_limits_of(lag)} age={furthest:.1f}s{_limits_of(oldest)}"


def _limits_of(thresholds: Thresholds | None) -> str:
    if thresholds is None:
        return ""
    return f";{thresholds.warning:g};{'' if thresholds.critical is None else f'{thresholds.critical:g}'}"


def _end(status: Status, text: str, measured: str = "") -> NoReturn:
    """One line, which a monitor cuts at the bar."""
    line = " ".join(text.replace("|", "/").split())
    print(f"HOOT {status} - {line}{f' | {measured}' if measured else ''}")
    raise typer.Exit(CODES[status])
