"""What is said of costs that grow: by how much, whether that is worse than linear, and the picture of it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from tests.bench import growth as measuring
from tests.bench.curves import ABOUT, LINEAR_MAX, Point, by_curve, growth, main, table, told
from tests.bench.growth import CURVES, Given


def points(*costs: float, curve: str = "partitions", factor: int = 10) -> list[Point]:
    """One for each cost, each at `factor` times the place of the one before."""
    return [
        Point(curve=curve, at=factor**number, cost_us=cost, messages=1000, per_second=1e6 / cost, host_mib=60)
        for number, cost in enumerate(costs)
    ]


@pytest.mark.parametrize(
    ("costs", "whole", "worst"),
    [
        ((2.0, 2.0, 2.0), 0.0, 0.0),
        ((1.0, 10.0, 100.0), 1.0, 1.0),
        ((1.0, 0.1), -1.0, -1.0),
        ((1.0, 1.0, 100.0), 1.0, 2.0),
        ((1.0, 100.0, 1.0), 0.0, 2.0),
    ],
    ids=["flat", "linear", "falling", "a square in the end", "a square in the middle"],
)
def test_a_growth_is_the_exponent_of_the_cost(costs: tuple[float, ...], whole: float, worst: float) -> None:
    found = growth(points(*costs))
    assert found.whole == pytest.approx(whole)
    assert found.worst == pytest.approx(worst)
    assert found.fine == (worst <= LINEAR_MAX)
    assert ("WORSE THAN LINEAR" in told(points(*costs))) == (worst > LINEAR_MAX)


def test_a_curve_is_told_in_its_own_unit() -> None:
    line = told(points(400_000, 4_000_000, curve="backlog"))
    assert line == (
        "messages in the backlog 1 to 10: 0.4 to 4 s in all; growth 1.00, between two points at most 1.00: fine"
    )
    assert "tells no growth" in told(points(1.0))
    assert table(points(1.0, 2.5))[-2:] == [
        "| 1 | 1 | 1,000,000 | – | 60 |", "| 10 | 2.5 | 400,000 | – | 60 |",
    ]  # fmt: skip


def test_of_a_point_that_was_measured_twice_the_later_counts() -> None:
    [first, second], [_, again] = points(1.0, 2.0), points(1.0, 3.0)
    assert by_curve([second, first, again]) == {"partitions": [first, again]}


def test_every_curve_has_its_words() -> None:
    assert CURVES.keys() == ABOUT.keys()


def test_places_end_where_they_are_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    given = Given("size", most=100, messages_max=10, durability="os")
    assert list(given.places(1, 100, 1000)) == [1, 100]
    assert capsys.readouterr().err == "size 1 …\nsize 100 …\n"
    assert (given.messages(5), given.messages(50)) == (5, 10)


@pytest.mark.parametrize(("costs", "status"), [((1.0, 2.0), 0), ((1.0, 200.0), 1)], ids=["fine", "worse"])
def test_the_exit_status_says_whether_anything_is_worse_than_linear(
    costs: tuple[float, ...], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measuring, "measured", lambda given: iter(points(*costs, curve=given.curve)))
    monkeypatch.setattr("sys.argv", ["growth", "size"])
    assert measuring.main() == status
    printed = capsys.readouterr()
    assert [msgspec.json.decode(line)["cost_us"] for line in printed.out.splitlines()] == list(costs)
    assert "growth" in printed.err


def test_the_plot_shows_each_point_and_what_linear_would_be(tmp_path: Path) -> None:
    lines = [msgspec.json.encode(one) for one in points(1.0, 2.0, 4.0)]
    (tmp_path / "points").write_bytes(b"\n".join(lines))
    main(tmp_path / "points", tmp_path / "plots")
    drawn = ET.fromstring((tmp_path / "plots" / "growth-partitions.svg").read_text())
    dots = [one for one in drawn.iter() if one.tag.endswith("circle")]
    x, y = ([float(dot.attrib[name]) for dot in dots] for name in ("cx", "cy"))
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2), "a factor is a distance"
    assert y[0] - y[1] == pytest.approx(y[1] - y[2], abs=0.2)
    assert y[0] > y[1], "more is further up"
    [dashed] = [one for one in drawn.iter() if "stroke-dasharray" in one.attrib]
    assert (float(dashed.attrib["x1"]), float(dashed.attrib["y1"])) == (x[0], y[0])
    assert {"1", "2", "4"} <= {one.text for one in drawn.iter() if one.tag.endswith("text")}
