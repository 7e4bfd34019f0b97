"""The plots and the table of docs/performance.md, made of the rows that `hoot bench compare --json` printed.

    python -m tests.bench.plots tests/bench/compare.jsonl docs/plots

One SVG a case: a bar for each peer's median, and a thin line from its lowest to its highest run. The table is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from delivery.bench.compare import Row

TITLES = {
    "publish": "publish: messages/s", "live": "live: messages/s", "drain": "drain: messages/s",
    "fanout": "fan-out over 8: deliveries/s", "latency": "latency at 1,000/s: p50 in ms, line to the p99",
}  # fmt: skip
COLUMNS = {
    "publish /s": "publish", "live /s": "live", "drain /s": "drain", "fan-out over 8, deliveries /s": "fanout",
    "at 1,000/s: p50 / p99 ms": "latency",
}  # fmt: skip
LABELS, WIDTH, ROW, TOP = 170, 420, 24, 34
FONT = 'font-family="sans-serif" font-size="12"'
OURS, THEIRS = "#c2571a", "#8a99a8"


class Bar(msgspec.Struct, frozen=True):
    """One peer's."""

    label: str
    value: float
    low: float
    high: float


def bar_of(row: Row) -> Bar | None:
    """None for a row without a figure."""
    if row.per_second is None:
        return None
    if row.case == "latency":
        p50 = row.p50_ms or 0.0
        return Bar(row.peer, p50, p50, row.p99_ms or p50)
    return Bar(row.peer, row.per_second, row.per_second_min or 0.0, row.per_second_max or 0.0)


def chart(title: str, bars: Sequence[Bar]) -> str:
    """An SVG."""
    most = max(bar.high for bar in bars)
    height = TOP + ROW * len(bars) + 6
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABELS + WIDTH + 110}" height="{height}" {FONT}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for number, bar in enumerate(bars):
        y, scale = TOP + ROW * number, WIDTH / most
        low, high, wide = (LABELS + bar.low * scale, LABELS + bar.high * scale, bar.value * scale)
        colour = OURS if bar.label.startswith("hoot") else THEIRS
        text = f"{bar.value:,.0f}" if bar.value >= 100 else f"{bar.value:.2f}"
        lines += [
            f'<text x="{LABELS - 6}" y="{y + 14}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect x="{LABELS}" y="{y + 3}" width="{wide:.1f}" height="15" fill="{colour}"/>',
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y + 10.5}" y2="{y + 10.5}" stroke="black"/>',
            f'<text x="{max(high, LABELS + wide) + 6:.1f}" y="{y + 14}">{text}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of a table in Markdown: a peer each, its medians with the lowest and highest."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        cells = found.setdefault(row.peer, {"durability": row.durability, "absent": ""})
        cells["absent"] = "" if row.case else row.absent
        cells[row.case] = _cell(row)
    lines = [f"| | {' | '.join(COLUMNS)} | acknowledged means |", f"|---|{'---|' * (len(COLUMNS) + 1)}"]
    for peer, cells in found.items():
        told = [cells.get(case, cells["absent"] or "–") for case in COLUMNS.values()]
        lines.append(f"| {peer} | {' | '.join(told)} | {cells['durability']} |")
    return lines


def _cell(row: Row) -> str:
    if row.per_second is None:
        return row.absent
    if row.case == "latency":
        return f"{row.p50_ms:.2f} / {row.p99_ms:.2f}"
    spread = f" [{row.per_second_min:,.0f}–{row.per_second_max:,.0f}]" if row.runs > 1 else ""
    return f"{row.per_second:,.0f}{spread}"


def main(rows_file: Path, folder: Path) -> None:
    """Write and print them."""
    rows = [msgspec.json.decode(line, type=Row) for line in rows_file.read_text().splitlines()]
    folder.mkdir(parents=True, exist_ok=True)
    for case, title in TITLES.items():
        bars = [bar for row in rows if row.case == case and (bar := bar_of(row)) is not None]
        if bars:
            (folder / f"{case}.svg").write_text(chart(title, bars))
    print(*table(rows), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
