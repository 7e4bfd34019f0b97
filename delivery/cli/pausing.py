"""`hoot subscription pause` and `resume`.

The JSON form of both is `{queue, subscription, pause}`, with the pause as `{since, until}`: null after a resume, and
`until` null for a pause that lasts until somebody resumes.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from delivery.cli import options
from delivery.cli.output import moment, show_json, span

if TYPE_CHECKING:
    from delivery.metastore.flow import Pause

For = Annotated[
    str | None, typer.Option("--for", metavar="TIME", help="How long: 90s, 10m, 1h30m.", show_default="until a resume")
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="When it ends: 2026-01-31T12:00Z; without a zone it is local."),
]


def pause(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    lasting: For = None,
    until: Until = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Deliver nothing more to a subscription for a while; what is out is still handled. Publishers do not notice."""
    from delivery.client import connect

    seconds = None if lasting is None else options.parse_span(lasting)
    with connect(zookeeper) as client:
        now = client.pause(queue, name, until=_end(until), seconds=seconds)
    _tell(queue, name, now.pause, as_json=as_json)


def resume(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Deliver to a paused subscription again, from where it stopped."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        client.resume(queue, name)
    _tell(queue, name, None, as_json=as_json)


def pause_fields(found: Pause | None) -> dict[str, str | None] | None:
    """The JSON form of a pause."""
    return None if found is None else {"since": moment(found.since_ms), "until": moment(found.until_ms)}


def described(found: Pause | None) -> str:
    """A pause in a few words."""
    if found is None:
        return "no"
    return "until a resume" if found.until_ms is None else f"for {span(found.until_ms / 1000 - time.time())} more"


def _end(text: str | None) -> datetime | None:
    if text is None:
        return None
    found = options.place(text, "--until")
    if not isinstance(found, datetime):
        raise typer.BadParameter(f"{text[:40]!r} is no time", param_hint="--until")
    return found


def _tell(queue: str, name: str, found: Pause | None, *, as_json: bool) -> None:
    if as_json:
        show_json({"queue": queue, "subscription": name, "pause": pause_fields(found)})
    elif found is None:
        print(f"resumed subscription {name} of queue {queue}")
    else:
        print(f"paused subscription {name} of queue {queue} {described(found)}")
