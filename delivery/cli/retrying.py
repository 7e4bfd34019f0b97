"""`--retry`, of the commands that make and change subscriptions: what becomes of messages that are not handled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delivery.cli.options import parse_span
from delivery.cli.output import span

if TYPE_CHECKING:
    from delivery.metastore.policy import RetryPolicy

Retry = Annotated[
    list[str] | None,
    typer.Option(
        "--retry", metavar="NAME=VALUE", show_default=False,
        help="What becomes of messages that are not handled: order=key, first_seconds=5s, factor=2,"
        " longest_seconds=10m, jitter=0.2, deliveries_max=5, crashes_max=3, timeout_seconds=30s,"
        " ack_timeout_seconds=5m or dead_letters=false; without a value the default; repeatable.",
    ),
]  # fmt: skip

_HINT: Final = "--retry"


def asked(settings: Iterable[str] | None) -> dict[str, object]:
    """The fields of a RetryPolicy that are given. Raises typer.BadParameter."""
    fields: dict[str, object] = {}
    for setting in settings or ():
        name, equals, text = setting.partition("=")
        if not equals:
            raise typer.BadParameter(f"{setting[:40]!r} is no setting: use NAME=VALUE", param_hint=_HINT)
        try:
            fields[name] = _parser(name)(text) if text else None
        except (ValueError, KeyError):
            raise typer.BadParameter(f"{text[:40]!r} is no value for {name[:40]}", param_hint=_HINT) from None
    return fields


def _parser(name: str) -> Callable[[str], object]:
    if name.endswith("_seconds"):
        return parse_span
    if name.endswith("_max"):
        return int
    if name == "dead_letters":
        return lambda text: {"true": True, "false": False}[text.lower()]
    return float if name in ("factor", "jitter") else str


def described(retry: RetryPolicy) -> str:
    """The policy in a line: what waits, for how long, what becomes of what fails and fails, and the limits of time."""
    waits = "its key waits" if retry.order == "key" else "its partition waits"
    pauses = f"again after {span(retry.first_seconds)}, at most {span(retry.longest_seconds)}"
    ends = [f"{count} {what}" for count, what in ((retry.deliveries_max, "failures"), (retry.crashes_max, "crashes"))
            if count]  # fmt: skip
    given_up = f"given up after {' or '.join(ends)}" if ends else "never given up"
    limits = ((retry.timeout_seconds, "callback"), (retry.ack_timeout_seconds, "acknowledgement"))
    bounded = "".join(f", {span(seconds)} for {what}s" for seconds, what in limits if seconds)
    return f"{waits}, {pauses}, {given_up}{bounded}"
