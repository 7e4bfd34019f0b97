"""What the demo shows: progress while it runs (on standard error), and its report at the end (on standard output)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from delivery.demo.flights import Tally
from delivery.demo.report import Carrier, Delivered, Report
from delivery.demo.steps import Step

_REFRESH_SECONDS = 0.2
_LINE_SECONDS = 3.0
_PLAIN_WIDTH = 140
"""Of a table that goes to a file or a pipe."""
_NOTHING = "-"


class Lane(NamedTuple):
    """One bar: its name, where it ends, and how far it is now."""

    name: str
    total: int
    reached: Callable[[], int]


class Screen:
    """Bars on a terminal; elsewhere a line every few seconds."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._begun = time.monotonic()

    def say(self, text: str) -> None:
        """Tell what happens, with the seconds since the start; above the bars while there are any."""
        self._console.print(f"{time.monotonic() - self._begun:6.1f} s  {text}", markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, lanes: Sequence[Lane]) -> Iterator[None]:
        """Show how far the lanes are, as long as the context lasts."""
        if self._console.is_terminal:
            with self._bars() as bars:
                tasks = [bars.add_task(lane.name, total=lane.total) for lane in lanes]

                def refresh() -> None:
                    for task, lane in zip(tasks, lanes, strict=True):
                        bars.update(task, completed=min(lane.reached(), lane.total))

                with _every(_REFRESH_SECONDS, refresh):
                    yield
                refresh()
        else:
            with _every(_LINE_SECONDS, lambda: self.say(_line(lanes))):
                yield
            self.say(_line(lanes))

    def _bars(self) -> Progress:
        return Progress(
            TextColumn("         {task.description:<10}"), BarColumn(bar_width=40), MofNCompleteColumn(),
            TimeElapsedColumn(), console=self._console,
        )  # fmt: skip


@contextmanager
def _every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            call()

    thread = threading.Thread(target=repeat, name="demo-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _line(lanes: Sequence[Lane]) -> str:
    return "   ".join(f"{lane.name} {lane.reached():,}/{lane.total:,}" for lane in lanes)


def show(report: Report) -> None:
    """Print the tables and what differs."""
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_PLAIN_WIDTH)
    console.print(_subscriptions(report.subscriptions))
    console.print(
        "Milliseconds from put to callback: over the whole run, both outages included, and (calm) over what was\n"
        "delivered before the first kill. messages/s is from the first callback to the last, at the publisher's pace\n"
        "and through both outages; `hoot bench` measures speed.\n"
    )
    console.print(_carriers(report.carriers))
    console.print()
    console.print(_steps(report.steps))
    console.print()
    if report.differences:
        console.print(f"{len(report.differences)} differences:", style="bold red")
        for difference in report.differences:
            console.print(f"  {difference}", markup=False, soft_wrap=True)
    else:
        console.print(
            f"All {report.events:,} flights were delivered to every subscription they belong to, in order; callbacks,"
            " Spark, archive, replay, audit and the file agree.", style="bold green", soft_wrap=True,
        )  # fmt: skip


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False, collapse_padding=True)
    for index, title in enumerate(titles):
        table.add_column(title, justify="right" if index else "left", overflow="fold")
    return table


def _subscriptions(rows: Sequence[Delivered]) -> Table:
    table = _table(
        "subscription", "delivered", "distinct", "duplicates", "missing", "out of\norder", "messages\n/s", "p50\nms",
        "p99\nms", "calm\np50 ms", "calm\np99 ms",
    )  # fmt: skip
    for row in rows:
        counts = (row.delivered, row.distinct, row.duplicates, row.missing, row.out_of_order)
        times = (row.p50_ms, row.p99_ms, row.calm_p50_ms, row.calm_p99_ms)
        rate = _NOTHING if row.messages_per_second is None else f"{row.messages_per_second:,.0f}"
        table.add_row(row.subscription, *(f"{count:,}" for count in counts), rate, *map(_number, times))
    return table


def _carriers(rows: Sequence[Carrier]) -> Table:
    table = _table(
        "carrier",
        "flights\nfile",
        "\ncallbacks",
        "\nSpark",
        "mean delay, min\nfile",
        "\ncallbacks",
        "\nSpark",
        "\nagree",
    )
    for row in rows:
        sources = (row.file, row.callbacks, row.spark)
        table.add_row(
            row.carrier, *(f"{one.flights:,}" for one in sources), *(_mean(one) for one in sources),
            "yes" if row.agrees else "NO", style=None if row.agrees else "bold red",
        )  # fmt: skip
    return table


def _steps(rows: Sequence[Step]) -> Table:
    table = _table("afterwards", "messages", "expected", "found", "seconds", "agree", "")
    table.columns[1].justify = table.columns[6].justify = "left"
    for row in rows:
        counts = (f"{row.expected:,}", f"{row.found:,}", f"{row.seconds:.1f}", "yes" if row.agrees else "NO")
        table.add_row(row.name, row.what, *counts, row.wrong or row.note, style=None if row.agrees else "bold red")
    return table


def _mean(one: Tally) -> str:
    return _number(one.mean_delay)


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.2f}"
