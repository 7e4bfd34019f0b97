"""Which partition of a topic a request is about; most topics have one, and their clients know of none."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

from delivery.errors import InvalidRequest
from delivery.model import check_partition, partition_of

_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z", re.ASCII)


def asked_partition(request: Request) -> int | None:
    """The partition by `partition` in the query, None where none is named. Raises InvalidRequest."""
    return _number(request, "partition")


def asked_partitions(request: Request) -> int:
    """How many a new topic is to have, by `partitions` in the query. Raises InvalidRequest."""
    found = _number(request, "partitions")
    return 1 if found is None else found


def place(queue: str, partitions: int, named: int | None, spread_by: bytes | None = None) -> int:
    """The partition of a topic with so many, which is that queue.

    Where none is named, that of `spread_by`, as of a key: the same for the same. Without that one has to be named.

    Raises UnknownPartition, InvalidRequest.
    """
    if named is not None:
        return check_partition(named, partitions, queue)
    if partitions == 1:
        return 0
    if spread_by is None:
        raise InvalidRequest(f"the topic has {partitions} partitions: name one with ?partition=")
    return partition_of(spread_by, partitions)


def _number(request: Request, name: str) -> int | None:
    if not request.scope["query_string"] or (text := request.query_params.get(name)) is None:
        return None
    if not _NUMBER.match(text):
        raise InvalidRequest(f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)
