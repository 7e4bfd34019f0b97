"""Plots as inline SVG, of plain numbers. Colours are the page's CSS variables, so that they fit light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

_WIDTH: Final = 720
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 26
_INNER: Final = _WIDTH - _LEFT - _RIGHT


class Series(msgspec.Struct, frozen=True):
    """Numbers of one kind, one for each place of the plot."""

    name: str
    values: Sequence[int]
    colour: str
    """The name of one of the page's: published, delivered, waiting, …"""


def stacked(series: Sequence[Series], labels: Sequence[str], *, height: int = 170) -> str:
    """Bars, one at each place, of the series on top of one another. `labels` say what the places are."""
    totals = [sum(one.values[at] for one in series) for at in range(len(labels))]
    top = nice(max(totals, default=0))
    inner, width = height - _TOP - _BOTTOM, _INNER / max(1, len(labels))
    marks = [_grid(top, inner), _ends(labels, height)]
    for at, label in enumerate(labels):
        base = 0.0
        told = ", ".join(f"{one.values[at]:,} {one.name}" for one in series if one.values[at])
        for one in series:
            tall = inner * one.values[at] / top
            if tall:
                y, gap = _TOP + inner - base - tall, min(1.0, width / 4)
                marks.append(
                    f'<rect class="{one.colour}" x="{_LEFT + at * width:.1f}" y="{y:.1f}" width="{width - gap:.1f}"'
                    f' height="{tall:.1f}"><title>{escape(label)}: {told}</title></rect>'
                )
            base += tall
    return _svg(height, marks)


def lines(series: Sequence[Series], labels: Sequence[str], *, height: int = 170) -> str:
    """A line for each series."""
    top = nice(max((max(one.values, default=0) for one in series), default=0))
    inner, step = height - _TOP - _BOTTOM, _INNER / max(1, len(labels) - 1)
    marks = [_grid(top, inner), _ends(labels, height)]
    for one in series:
        places = [
            (_LEFT + at * step, _TOP + inner * (1 - value / top), f"{labels[at]}: {value:,} {one.name}")
            for at, value in enumerate(one.values)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        marks.append(f'<polyline class="{one.colour}" points="{path}"/>')
        marks += [
            f'<circle class="{one.colour}" cx="{x:.1f}" cy="{y:.1f}" r="{2 if len(places) < 60 else 0.8}">'
            f"<title>{escape(told)}</title></circle>"
            for x, y, told in places
        ]
    return _svg(height, marks)


def columns(one: Series, labels: Sequence[str], *, height: int = 170) -> str:
    """Bars that each have their label below."""
    top = nice(max(one.values, default=0))
    inner, width = height - _TOP - _BOTTOM, _INNER / max(1, len(labels))
    marks = [_grid(top, inner)]
    for at, (label, value) in enumerate(zip(labels, one.values, strict=True)):
        tall, x = inner * value / top, _LEFT + at * width
        marks.append(
            f'<rect class="{one.colour}" x="{x + 1:.1f}" y="{_TOP + inner - tall:.1f}" width="{width - 2:.1f}"'
            f' height="{tall:.1f}"><title>{escape(label)}: {value:,} {one.name}</title></rect>'
            f'<text class="middle" x="{x + width / 2:.1f}" y="{height - 8}">{escape(label)}</text>'
        )
    return _svg(height, marks)


def ranked(one: Series, labels: Sequence[str]) -> str:
    """Bars from left to right, each with its label and its number."""
    top, row = max(one.values, default=0) or 1, 22
    left, room = 200, _WIDTH - 200 - 90
    marks = []
    for at, (label, value) in enumerate(zip(labels, one.values, strict=True)):
        y, wide = at * row, room * value / top
        shown = label if len(label) <= 28 else label[:27] + "…"
        marks.append(
            f'<text class="end" x="{left - 8}" y="{y + 15}">{escape(shown)}</text>'
            f'<rect class="{one.colour}" x="{left}" y="{y + 3}" width="{max(1.0, wide):.1f}" height="{row - 6}">'
            f"<title>{escape(label)}: {value:,} {one.name}</title></rect>"
            f'<text x="{left + wide + 6:.1f}" y="{y + 15}">{value:,}</text>'
        )
    return _svg(max(row, row * len(labels)), marks)


def nice(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, …, which is not below the value."""
    if value <= 0:
        return 1
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 5, 10) if step * unit >= value * (1 - 1e-9))


def _grid(top: float, inner: float) -> str:
    found = []
    for part in (0, 0.5, 1):
        y = _TOP + inner * (1 - part)
        found.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{_number(top * part)}</text>'
        )
    return "".join(found)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def _ends(labels: Sequence[str], height: int) -> str:
    """The first label and the last one."""
    if not labels:
        return ""
    first = f'<text x="{_LEFT}" y="{height - 8}">{escape(labels[0])}</text>'
    if len(labels) == 1:
        return first
    return first + f'<text class="end" x="{_WIDTH - _RIGHT}" y="{height - 8}">{escape(labels[-1])}</text>'


def _svg(height: int, marks: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(marks)}</svg>'
