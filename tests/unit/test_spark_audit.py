"""The audit without Spark: what metadata tell of a subscription, sums and quantiles, and the page that people read."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from delivery.metastore.managers.records import ParkedKey, SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.replays import Replay
from delivery.spark.jobs.audit.counts import LATENCIES, Counts, quantile_ms, summed, told_ms
from delivery.spark.jobs.audit.plots import nice
from delivery.spark.jobs.audit.report import STEPS_MAX, html
from delivery.spark.jobs.audit.sections import Finding, Listener, Minute, Report, Section
from delivery.spark.jobs.audit.subjects import Reached, subject

T0 = 1_795_305_300_000


def preferences(**changes: object) -> SubscriptionRecord:
    given: dict[str, object] = {
        "name": "audit", "queue": "orders", "generation": "g", "created_ms": 1, "starts": {0: 10, 1: 20},
        "all_partitions": True, "topics": (),
    }  # fmt: skip
    return SubscriptionRecord(**{**given, **changes})  # type: ignore[arg-type]


def test_a_subscription_is_judged_by_its_starts_positions_and_what_is_parked() -> None:
    states = {0: SubscriptionState(50, 1, "g", 1, parked=(ParkedKey(b"k", (30, 41)), ParkedKey(None, (22,))))}
    found = subject(preferences(), states)
    assert found.reached == (Reached(0, 10, None, 50, (22, 30, 41)), Reached(1, 20, None, 20))
    assert found.notes == ()


def test_what_may_rightly_be_missing_or_come_twice_is_said() -> None:
    replayed = preferences(replay=Replay("other", {0: 40}), topics=("a",), filter='{"exact": {"topic": "a"}}')
    found = subject(replayed, {1: SubscriptionState(50, 1, "g", 1, moves=2)})
    assert [one.end for one in found.reached] == [40, 0]
    assert (found.topics, found.filter) == (("a",), '{"exact": {"topic": "a"}}')
    said = " ".join(found.notes)
    assert "move 2 " in said
    assert "topics and filter of now" in said
    others = " ".join(subject(preferences(bound=7, newest={0: 9}, kind="key_shared"), {}).notes)
    assert "newest 7" in others
    assert "newest message of each key" in others
    assert "faster ones" in others


def test_quantiles_are_the_edges_of_their_classes_and_never_above_the_slowest() -> None:
    counts: Counts = {"to_10_ms": 98, "to_1000_ms": 1, "above": 1, "slowest_ms": 7_200_000}
    assert quantile_ms(counts, 0.5) == 10
    assert quantile_ms(counts, 0.99) == 1_000
    assert quantile_ms(counts, 1.0) == 7_200_000
    assert quantile_ms({"to_50_ms": 3, "slowest_ms": 21}, 0.99) == 21
    assert quantile_ms({}, 0.5) is None
    both = summed([counts, {"to_10_ms": 2, "slowest_ms": 9}])
    assert (both["to_10_ms"], both["slowest_ms"]) == (100, 7_200_000)
    assert [told_ms(one) for one in (7, 2_500, 60_000, 7_200_000)] == ["7 ms", "2.5 s", "1 min", "2 h"]


@pytest.mark.parametrize(("value", "top"), [(0, 1), (1, 1), (3, 5), (10, 10), (11, 20), (501, 1000), (5000, 5000)])
def test_the_top_of_a_plot_is_a_round_number_that_is_not_below(value: int, top: int) -> None:
    assert nice(value) == top


class Page(HTMLParser):
    """Reads a page, and fails where its elements are not closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.sources: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def counts(published: int, **others: int) -> Counts:
    return {"published": published, "acknowledged": published, **others}


def section(name: str = "audit", **changes: object) -> Section:
    given: dict[str, object] = {
        "name": name, "kind": "exclusive", "recorded": True,
        "partitions": {0: counts(700, missing=3, delivered=697, slowest_ms=90, **{LATENCIES[3]: 697}), 1: counts(300)},
        "minutes": (
            Minute(T0, counts(900, watched=900, arrivals=800)),
            Minute(T0 + 7 * 60_000, counts(100, watched=100, arrivals=200)),
        ),
        "topics": {"<script>alert(1)</script>": counts(1000)},
    }  # fmt: skip
    return Section(**{**given, **changes})  # type: ignore[arg-type]


def page(*sections: Section) -> str:
    return html(Report(
        queue="orders", made_ms=T0, begin="earliest", until="1795305360000-0", messages=1000, late_ms=60_000,
        sections=sections, broken_lines=2,
    ))  # fmt: skip


def test_the_report_is_one_page_that_loads_nothing_and_means_what_is_said() -> None:
    text = page(
        section(
            listeners=(Listener("host:1", counts(1000)),),
            findings=(Finding(1, 1 << 15, "a&b", "missing"),),
            notes=("<i>",),
        ),
        section("billing", recorded=False),
    )
    read = Page(text)
    assert read.sources == ["#audit", "#billing"]
    for word in ("http", "<script", "@import", "url("):
        assert word not in text
    for said in ("1,000", "3", "≤ 10 ms", "1-0", "a&b", "<i>", "host:1", "<script>alert(1)</script>"):
        assert said in read.words, said
    assert any("no records" in one for one in read.words)
    assert any("2 lines" in one for one in read.words)


def test_plots_have_every_minute_and_no_more_places_than_room() -> None:
    few = page(section())
    assert few.count("<circle") == 5 * 8, "8 minutes of five lines, though nothing counts at six of them"
    many = page(section(minutes=tuple(Minute(T0 + n * 600_000, counts(5, watched=5, arrivals=4)) for n in range(500))))
    assert many.count("<circle") <= 5 * STEPS_MAX
    assert "28 minutes" in many
    lag = [int(n.replace(",", "")) for n in re.findall(r": ([\d,]+) behind", many)]
    assert lag == sorted(lag)
    assert lag[-1] == 500


def test_latencies_are_told_by_the_minute() -> None:
    slow = counts(900, watched=900, arrivals=900, to_10_ms=890, to_100_ms=10, slowest_ms=90)
    text = page(section(minutes=(Minute(T0, slow), Minute(T0 + 60_000, counts(100, to_1_ms=100, slowest_ms=1)))))
    for name, found in (("p50", ["10", "1"]), ("p99", ["90", "1"])):
        assert re.findall(rf": (\d+) {name}<", text) == found


def test_a_queue_without_subscriptions_and_one_without_messages_have_a_page_too() -> None:
    assert "no subscriptions" in page()
    Page(page(section(partitions={}, minutes=(), topics={})))
