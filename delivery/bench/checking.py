"""What a bench holds against what was published before it prints a rate: the callbacks' ids, and the checkpoints."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from delivery.client import Client, Queue
from delivery.client.publisher import PublishedMessage, Receipt
from delivery.errors import HootError

_SETTLE_SECONDS = 10.0


class BenchFailed(HootError):
    """Something was lost, doubled or reordered, or not checkpointed: there is no rate to print."""

    code = "bench_failed"


def published(receipts: Iterable[Receipt]) -> dict[int, list[int]]:
    """The ids of what was stored, by partition and in order. Waits; raises what a receipt does."""
    return by_partition(receipt.result() for receipt in receipts)


def by_partition(stored: Iterable[PublishedMessage]) -> dict[int, list[int]]:
    """The ids of messages, by partition and in order."""
    found: dict[int, list[int]] = {}
    for one in stored:
        found.setdefault(one.partition, []).append(int(one.id))
    return {partition: sorted(ids) for partition, ids in found.items()}


def noted(file: Path, kind: Literal["q", "H"]) -> array[int]:
    """What a tally left in a file, as numbers of that kind of array."""
    values = array(kind)
    values.frombytes(file.read_bytes())
    return values


def delivered(ids_file: Path, partitions_file: Path | None) -> dict[int, list[int]]:
    """What a consumer noted, by partition; without a file of partitions all of it is of partition 0."""
    ids = noted(ids_file, "q")
    if partitions_file is None:
        return {0: list(ids)}
    found: dict[int, list[int]] = {}
    for partition, number in zip(noted(partitions_file, "H"), ids, strict=True):
        found.setdefault(partition, []).append(number)
    return found


Numbers = Mapping[int, Sequence[int]]
"""Ids by partition."""


def check_stored(queue: Queue, wanted: Numbers, messages: int) -> None:
    """Raise BenchFailed unless so many ids were acknowledged, none twice, and the partitions hold as many."""
    acknowledged = sum(len(set(ids)) for ids in wanted.values())
    if acknowledged != messages:
        raise BenchFailed(f"{messages} messages were published and {acknowledged} ids acknowledged")
    for partition in range(queue.partitions):
        held, ids = queue.bounds(partition), wanted.get(partition, ())
        if held.messages != len(ids) or (ids and (held.first, held.last) != (ids[0], ids[-1])):
            raise BenchFailed(
                f"partition {partition}: {len(ids)} messages were acknowledged and {held.messages} are stored; they"
                " are not the same"
            )


def check_delivered(wanted: Numbers, got: Numbers) -> None:
    """Raise BenchFailed unless each partition's messages arrived once and in order, and no others."""
    _check_same(wanted, got)
    for partition, found in sorted(got.items()):
        if any(a >= b for a, b in pairwise(found)):
            raise BenchFailed(f"partition {partition}: messages were delivered out of order")


def check_by_key(wanted: Numbers, got: Numbers, keys: Mapping[tuple[int, int], int]) -> None:
    """Raise BenchFailed unless each message arrived once, in the order of its key; `keys` are by partition and id."""
    _check_same(wanted, got)
    for partition, found in sorted(got.items()):
        last: dict[int, int] = {}
        for number in found:
            key = keys[partition, number]
            if number <= last.get(key, 0):
                raise BenchFailed(f"partition {partition}: messages of one key were delivered out of order")
            last[key] = number


def _check_same(wanted: Numbers, got: Numbers) -> None:
    for partition in sorted({*wanted, *got}):
        expected, found = wanted.get(partition, ()), got.get(partition, ())
        if sorted(found) != list(expected):
            raise BenchFailed(
                f"partition {partition}: {len(expected)} messages were published and {len(found)} delivered; they are"
                " not the same"
            )


def check_checkpoints(
    client: Client, queue: str, name: str, wanted: Numbers, *, seconds: float = _SETTLE_SECONDS, pause: float = 0.05
) -> None:  # fmt: skip
    """Raise BenchFailed unless the subscription's checkpoints reach each partition's last message, in time.

    A look at thousands of partitions may take longer than that: one that began in time is not the last.
    """
    deadline, begun = time.monotonic() + seconds, time.monotonic()
    while behind := _behind(client, queue, name, wanted):
        if begun > deadline:
            raise BenchFailed(f"the checkpoint of {name} stayed behind the last message of partition {behind[0]}")
        time.sleep(pause)
        begun = time.monotonic()


def _behind(client: Client, queue: str, name: str, wanted: Numbers) -> list[int]:
    positions = {one.partition: one.position for one in client.subscription_info(queue, name).partitions}
    return [partition for partition, ids in wanted.items() if positions.get(partition, -1) < ids[-1]]
