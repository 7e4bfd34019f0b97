"""The options that limit how fast a subscription is delivered, and how that is shown (docs/flow.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from delivery.cli import options
from delivery.cli.output import size

if TYPE_CHECKING:
    from delivery.metastore.flow import Flow

MessagesPerSecond = Annotated[
    float | None,
    typer.Option("--messages-per-second", metavar="N", help="At most so many; 0 for no limit.", show_default=False),
]
BytesPerSecond = Annotated[
    str | None,
    typer.Option("--bytes-per-second", metavar="SIZE", help="At most so many; 0 for no limit.", show_default=False),
]

WindowMessages = Annotated[
    int | None,
    typer.Option(
        "--window-messages", metavar="N", show_default=False,
        help="At most so many unacknowledged in a partition; 0 for what is handled in a second.",
    ),
]  # fmt: skip
WindowBytes = Annotated[
    str | None,
    typer.Option(
        "--window-bytes", metavar="SIZE", show_default=False,
        help="At most so many unacknowledged in a partition; 0 for what the hosts allow.",
    ),
]  # fmt: skip


def given(
    *, messages_per_second: float | None, bytes_per_second: str | None, window_messages: int | None,
    window_bytes: str | None,
) -> dict[str, float]:  # fmt: skip
    """The fields of a Flow that were named."""
    found: dict[str, float] = {}
    if window_messages is not None:
        found["window_messages"] = window_messages
    if window_bytes is not None:
        found["window_bytes"] = options.parse_size(window_bytes)
    if messages_per_second is not None:
        found["messages_per_second"] = messages_per_second
    if bytes_per_second is not None:
        found["bytes_per_second"] = options.parse_size(bytes_per_second)
    return found


def described(flow: Flow) -> str:
    """A flow in a few words."""
    limits = []
    if flow.messages_per_second:
        limits.append(f"{flow.messages_per_second:,g} messages/s")
    if flow.bytes_per_second:
        limits.append(f"{size(int(flow.bytes_per_second))}/s")
    if flow.window_messages:
        limits.append(f"{flow.window_messages:,} messages out")
    if flow.window_bytes:
        limits.append(f"{size(flow.window_bytes)} out")
    return f"at most {', '.join(limits)}" if limits else "as fast as it takes it"
