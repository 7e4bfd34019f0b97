"""The audit's report: one HTML file that needs nothing else. Plain."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from delivery.ids import MessageId
from delivery.spark.jobs.audit.counts import EDGES_MS, SLOWEST, Counts, classes, quantile_ms, summed, told_ms
from delivery.spark.jobs.audit.plots import Series, columns, lines, ranked, stacked
from delivery.spark.jobs.audit.sections import Minute, Report, Section

STEPS_MAX: Final = 180
"""Places of a plot over time; minutes are put together so that there are no more."""
TOPICS_MAX: Final = 12
_MINUTE: Final = 60_000
_STATES: Final = ("acknowledged", "parked", "dead", "waiting")

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2430; --paper: #fff; --faint: #6b7280; --line: #d9dde5;
  --good: #2a78b8; --new: #e08a1e; --bad: #c0392b; --dead: #7b5ea7; --wait: #8a93a3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --paper: #14171d; --faint: #9aa3b2; --line: #343a46;
  --good: #5aa9e6; --new: #f0a94b; --bad: #ef6f61; --dead: #a98bd8; --wait: #7d8798; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 0.3rem; }
p { margin: 0.4rem 0; } a { color: var(--good); } .faint { color: var(--faint); }
.wide { overflow-x: auto; } table { font-size: 13px; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.5rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--faint); } th:first-child, td:first-child, .text { text-align: left; }
td.bad { color: var(--bad); font-weight: 600; }
svg { width: 100%; height: auto; max-width: 800px; display: block; }
svg text { fill: var(--faint); font-size: 11px; } svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; font-size: 9.5px; }
svg line { stroke: var(--line); } svg polyline { stroke: var(--own); stroke-width: 2; fill: none; }
svg rect, svg circle, .key { fill: var(--own); background: var(--own); }
.acknowledged, .published { --own: var(--good); } .parked { --own: var(--bad); } .dead { --own: var(--dead); }
.waiting, .p99 { --own: var(--wait); } .delivered, .p50 { --own: var(--new); }
.key { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 2px; margin: 0 0.3em 0 0.9em; }
"""


def html(report: Report) -> str:
    """The page."""
    title = f"Audit of {escape(report.queue)}"
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f'<p class="faint">{report.messages:,} messages from {escape(report.begin)} up to {escape(report.until)}.',
        f"Looked at {_time(report.made_ms)} UTC. Late is more than {told_ms(report.late_ms)}.</p>",
        _overview(report.sections),
        *(_section(one) for one in report.sections),
    ]
    if report.broken_lines:
        parts.append(f"<p>{report.broken_lines} lines of the records are cut off: they count for nothing.</p>")
    return "\n".join([*parts, "</body></html>\n"])


def _overview(sections: Sequence[Section]) -> str:
    if not sections:
        return "<p>The queue has no subscriptions.</p>"
    rows = []
    for one in sections:
        link = f'<a href="#{escape(one.name)}">{escape(one.name)}</a>'
        rows.append(f'<tr><td class="text">{link}</td>{_cells(one.totals, recorded=one.recorded)}</tr>')
    return _table("subscription", rows)


def _section(one: Section) -> str:
    steps, width = _steps(one.minutes)
    labels = [_time(step.begin_ms) for step in steps]
    parts = [f'<h2 id="{escape(one.name)}">{escape(one.name)}</h2><p class="faint">{escape(one.kind)}</p>']
    parts += [f"<p>{escape(note)}</p>" for note in one.notes]
    if not one.recorded:
        parts.append(
            "<p>There are no records of its deliveries: what is missing, late or delivered twice is not known. What is"
            " acknowledged is what its checkpoints say.</p>"
        )
    if steps:
        parts.append(f"<h3>Published, by {width} and by what became of it {_keys(_STATES)}</h3>")
        parts.append(stacked([Series(name, _values(steps, name), name) for name in _STATES], labels))
        if one.recorded:
            parts += _of_records(one, steps, labels, width)
        parts += [_topics(one.topics)]
    rows = [
        f'<tr><td class="text">{number}</td>{_cells(counts, recorded=one.recorded)}</tr>'
        for number, counts in sorted(one.partitions.items())
    ]
    parts += ["<h3>Partitions</h3>", _table("partition", rows)]
    if one.findings:
        parts.append(_findings(one))
    return "\n".join(parts)


def _of_records(one: Section, steps: Sequence[Minute], labels: Sequence[str], width: str) -> list[str]:
    published, arrived = _values(steps, "watched"), _values(steps, "arrivals")
    behind, lag = 0, []
    for new, got in zip(published, arrived, strict=True):
        behind += new - got
        lag.append(max(0, behind))
    flows = [Series("published", published, "published"), Series("delivered", arrived, "delivered")]
    edges = [*(told_ms(edge).replace(" ", "") for edge in EDGES_MS), "more"]
    found = [
        f"<h3>Published since there are records, and delivered, by {width} {_keys(('published', 'delivered'))}</h3>",
        lines(flows, labels),
        "<h3>Lag: published, but not delivered yet</h3>", lines([Series("behind", lag, "waiting")], labels),
        f"<h3>Latency of the first deliveries of what was published, in ms, by {width} {_keys(tuple(_QUANTILES))}</h3>",
        lines([Series(name, _latencies(steps, part), name) for name, part in _QUANTILES.items()], labels),
        "<h3>Latency of first deliveries, up to</h3>",
        columns(Series("messages", classes(one.totals), "delivered"), edges),
    ]  # fmt: skip
    slow = sorted(one.listeners, key=lambda each: -(quantile_ms(each.counts, 0.99) or 0))
    rows = [f'<tr><td class="text">{escape(each.name)}</td>{_cells(each.counts, recorded=True)}</tr>' for each in slow]
    return [*found, "<h3>Listeners, the slowest first</h3>", _table("listener", rows)] if rows else found


def _topics(topics: dict[str, Counts]) -> str:
    order = sorted(topics, key=lambda name: (-topics[name].get("published", 0), name))
    named = [(name or "(no topic)", topics[name].get("published", 0)) for name in order[:TOPICS_MAX]]
    if rest := order[TOPICS_MAX:]:
        named.append((f"({len(rest)} others)", sum(topics[name].get("published", 0) for name in rest)))
    values = Series("messages", [count for _, count in named], "published")
    return "<h3>Topics</h3>" + ranked(values, [name for name, _ in named])


def _findings(one: Section) -> str:
    rows = [
        f'<tr><td class="text">{escape(each.what)}</td><td>{each.partition}</td><td>{MessageId(each.number)}</td>'
        f'<td class="text">{escape(each.topic)}</td></tr>'
        for each in one.findings
    ]
    head = '<tr><th>what</th><th>partition</th><th>id</th><th class="text">topic</th></tr>'
    return (
        f'<h3>The first findings</h3><p class="faint">All of them are in the table beside this file.</p>'
        f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'
    )


_QUANTILES: Final = {"p50": 0.5, "p99": 0.99}
_TITLES: Final = ("published", *_STATES, "delivered", "missing", "duplicates", "late", "p50", "p99", "slowest")
_BAD: Final = frozenset({"parked", "dead", "missing", "duplicates", "late"})


def _table(what: str, rows: Sequence[str]) -> str:
    head = "".join(f"<th>{title}</th>" for title in (what, *_TITLES))
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _cells(counts: Counts, *, recorded: bool) -> str:
    """A row of what was counted, and the latencies; a dash for what is not known."""
    cells = []
    for title in _TITLES[:-3]:
        known = recorded or title in {"published", *_STATES}
        value = counts.get(title, 0)
        bad = ' class="bad"' if known and value and title in _BAD else ""
        cells.append(f"<td{bad}>{f'{value:,}' if known else '–'}</td>")
    for part in (0.5, 0.99):
        found = quantile_ms(counts, part)
        cells.append(f"<td>{'–' if found is None else f'≤ {told_ms(found)}'}</td>")
    cells.append(f"<td>{told_ms(counts.get(SLOWEST, 0)) if sum(classes(counts)) else '–'}</td>")
    return "".join(cells)


def _steps(minutes: Sequence[Minute]) -> tuple[list[Minute], str]:
    """The minutes without a gap, put together to as many as a plot has room for; and how long each is, in words."""
    if not minutes:
        return [], ""
    first, last = minutes[0].begin_ms // _MINUTE, minutes[-1].begin_ms // _MINUTE
    size = -(-(last - first + 1) // STEPS_MAX)
    parts: dict[int, list[Counts]] = {}
    for one in minutes:
        parts.setdefault((one.begin_ms // _MINUTE - first) // size, []).append(one.counts)
    count = (last - first) // size + 1
    found = [Minute((first + at * size) * _MINUTE, summed(parts.get(at, ()))) for at in range(count)]
    return found, "minute" if size == 1 else f"{size} minutes"


def _values(steps: Sequence[Minute], name: str) -> list[int]:
    return [one.counts.get(name, 0) for one in steps]


def _latencies(steps: Sequence[Minute], part: float) -> list[int]:
    return [quantile_ms(one.counts, part) or 0 for one in steps]


def _keys(names: Sequence[str]) -> str:
    return "".join(f'<span class="key {name}"></span><span class="faint">{name}</span>' for name in names)


def _time(milliseconds: int) -> str:
    return f"{MessageId.of(milliseconds).time:%Y-%m-%d %H:%M}"
