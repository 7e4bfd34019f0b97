"""What the points of `tests.bench.growth` say: how fast each cost grows, a table, and a plot for each curve.

    python -m tests.bench.curves tests/bench/growth.jsonl docs/plots

A growth is the exponent of the cost: 0 is flat, 1 is linear, 2 would be a square. A curve is fine when no step between
two neighbours is worse than linear, with something left for machines that wander. In the plots, which have logarithms
on both sides, the dashed line is what linear would be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

import msgspec

from tests.bench.plots import FONT, OURS, THEIRS

LINEAR_MAX: Final = 1.2
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 470, 200, 70, 40, 46


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured place of a curve."""

    curve: str
    at: int
    cost_us: float
    """Microseconds, of what the curve is about (see ABOUT)."""
    messages: int
    per_second: float
    host_seconds_per_million: float | None = None
    host_mib: int | None = None


class About(NamedTuple):
    """How a curve is told."""

    title: str
    across: str
    """What grows."""
    unit: str
    per_us: float
    """Microseconds of that unit."""


ABOUT: Final = {
    "partitions": About("partitions, batches of 100 to one after the other", "partitions", "µs a message", 1),
    "subscriptions": About("idle subscriptions beside a busy one", "subscriptions", "µs a message", 1),
    "size": About("message size", "bytes in a body", "µs a message", 1),
    "batch": About("messages in a batch", "messages in a batch", "µs a message", 1),
    "backlog": About("draining a backlog", "messages in the backlog", "s in all", 1e6),
    "processes": About("hosts on two cores, eight partitions", "hosts", "µs a message", 1),
    "restart": About("restart with log on the disk", "MiB of log", "ms to the first stored message", 1e3),
}  # fmt: skip


class Growth(NamedTuple):
    """How the cost of a curve grows."""

    whole: float
    """From the first point to the last."""
    worst: float
    """Between two neighbours."""

    @property
    def fine(self) -> bool:
        """Whether it is nowhere worse than linear."""
        return self.worst <= LINEAR_MAX


def growth(points: Sequence[Point]) -> Growth:
    """Of at least two points in rising order."""
    return Growth(_exponent(points[0], points[-1]), max(_exponent(*two) for two in pairwise(points)))


def _exponent(before: Point, after: Point) -> float:
    return log10(after.cost_us / before.cost_us) / log10(after.at / before.at)


def by_curve(points: Iterable[Point]) -> dict[str, list[Point]]:
    """The points of each curve, in rising order; of the same place the last one counts."""
    found: dict[str, dict[int, Point]] = {}
    for point in points:
        found.setdefault(point.curve, {})[point.at] = point
    return {curve: [places[at] for at in sorted(places)] for curve, places in found.items()}


def told(points: Sequence[Point]) -> str:
    """A line on a curve."""
    first, last, about = points[0], points[-1], ABOUT[points[0].curve]
    text = f"{about.across} {first.at:,} to {last.at:,}: {_number(first)} to {_number(last)} {about.unit}"
    if len(points) < 2:
        return f"{text}; one point tells no growth"
    found = growth(points)
    verdict = "fine" if found.fine else "WORSE THAN LINEAR"
    return f"{text}; growth {found.whole:.2f}, between two points at most {found.worst:.2f}: {verdict}"


def table(points: Sequence[Point]) -> list[str]:
    """The lines of a table in Markdown."""
    about = ABOUT[points[0].curve]
    lines = [
        f"| {about.across} | {about.unit} | messages/s | host, s per million | host, MiB |",
        "|---|---|---|---|---|",
    ]
    for one in points:
        spent = "–" if one.host_seconds_per_million is None else f"{one.host_seconds_per_million:.2f}"
        memory = "–" if one.host_mib is None else f"{one.host_mib}"
        lines.append(f"| {one.at:,} | {_number(one)} | {one.per_second:,.0f} | {spent} | {memory} |")
    return lines


def _number(point: Point) -> str:
    value = point.cost_us / ABOUT[point.curve].per_us
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class _Scale(NamedTuple):
    """A logarithmic axis over whole decades."""

    low: int
    high: int
    begin: float
    """Where the lowest lies in the picture."""
    end: float

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float) -> _Scale:
        low, high = floor(log10(min(values))), ceil(log10(max(values)))
        return cls(low, max(high, low + 1), begin, end)

    def place(self, value: float) -> float:
        return self.begin + (log10(value) - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        return [10.0**exponent for exponent in range(self.low, self.high + 1)]


def chart(points: Sequence[Point]) -> str:
    """An SVG."""
    about = ABOUT[points[0].curve]
    costs = [one.cost_us / about.per_us for one in points]
    across = _Scale.over([one.at for one in points], LEFT, LEFT + WIDTH)
    up = _Scale.over(costs, TOP + HEIGHT, TOP)
    places = [(across.place(one.at), up.place(cost)) for one, cost in zip(points, costs, strict=True)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" height="{TOP + HEIGHT + BOTTOM}" {FONT}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(f"{about.title}: {about.unit}")}</text>',
        *_axes(across, up, about.across),
        _linear(across, up, points[0].at, costs[0]),
        f'<polyline points="{line}" fill="none" stroke="{OURS}" stroke-width="2"/>',
        *(_dot(x, y, one) for (x, y), one in zip(places, points, strict=True)),
        "</svg>", "",
    ])  # fmt: skip


def _axes(across: _Scale, up: _Scale, label: str) -> list[str]:
    lines = [f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 38}" text-anchor="middle">{escape(label)}</text>']
    for value in across.ticks():
        x = across.place(value)
        lines += [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="#e4e4e4"/>',
            f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{value:,.0f}</text>',
        ]
    for value in up.ticks():
        y = up.place(value)
        lines += [
            f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.6g}</text>',
        ]
    return lines


def _linear(across: _Scale, up: _Scale, at: float, cost: float) -> str:
    """From the first point on, up to where the picture ends."""
    factor = min(10.0**across.high / at, 10.0**up.high / cost)
    x1, x2, y1, y2 = across.place(at), across.place(at * factor), up.place(cost), up.place(cost * factor)
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{THEIRS}" stroke-dasharray="5 4"/>'


def _dot(x: float, y: float, point: Point) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{OURS}"/>'
        f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{escape(_number(point))}</text>'
    )


def main(points_file: Path, folder: Path) -> None:
    """Write the plots, and print what is told of them, in Markdown."""
    points = [msgspec.json.decode(line, type=Point) for line in points_file.read_text().splitlines()]
    folder.mkdir(parents=True, exist_ok=True)
    for curve, found in by_curve(points).items():
        (folder / f"growth-{curve}.svg").write_text(chart(found))
        image = f"![{ABOUT[curve].title}]({folder.name}/growth-{curve}.svg)"
        print(told(found), "", *table(found), "", image, "", sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
