"""Whether a callback is stuck, for the verdict on a partition: a plain decision."""

from __future__ import annotations

from delivery.dispatch.observation import Callback, Observation
from delivery.dispatch.wording import span
from delivery.ids import MessageId


def stuck(seen: Observation, stuck_seconds: float) -> tuple[int, str] | None:
    """Since when, and the text; None when nothing has taken so long, or something moves on."""
    since, running = seen.out_since_ms, seen.callback
    if running is not None and running.moving:
        return None
    if not since or (seen.now_ms - since) / 1000 < stuck_seconds:
        return None if running is None else _outstayed(seen, running, stuck_seconds)
    return since, f"no answer for {span((seen.now_ms - since) / 1000)}{_why(running)}"


def _why(running: Callback | None) -> str:
    if running is None:
        return ", and the subscriber does not tell which callback runs: look at it, restart it if it hangs"
    where = f"{running.queue}/{running.partition}"
    if not running.name:
        return (
            f": message {MessageId(running.message)} of {where} was taken by a listener, and nobody has acknowledged"
            " it; look for what was to do that, or set a limit (ack_timeout_seconds)"
        )
    told = f" with message {MessageId(running.message)} of {where}" if running.message else f" with messages of {where}"
    return f": {running.name} runs{told}; its stack tells what it waits for"


def _outstayed(seen: Observation, running: Callback, stuck_seconds: float) -> tuple[int, str] | None:
    """A callback that runs on, although its message has failed by that."""
    if not running.name or running.partition != seen.partition or running.seconds < stuck_seconds:
        return None
    return seen.now_ms - int(running.seconds * 1000), (
        f"{running.name} has run for {span(running.seconds)} with message {MessageId(running.message)}, which has"
        " failed by that and waits with its key until the callback returns; its stack tells what it waits for"
    )
