"""What `make bench` says of a run: held against the last one of the same on the same kind of machine; and the plots."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from delivery.bench.compare import Row
from delivery.bench.report import result, summary
from tests.bench import history
from tests.bench.history import Run, against, figures_of, last_like, machine, read, what, write
from tests.bench.plots import main as plot


def a_run(at: str = "t", machine: str = "m", arguments: str = "live", **figures: float) -> Run:
    return Run(at, machine, arguments, figures)


def test_the_last_run_of_the_same_on_the_same_kind_of_machine_counts(tmp_path: Path) -> None:
    kept = tmp_path / "history.jsonl"
    assert read(kept) == []
    for run in (a_run("1"), a_run("2"), a_run("3", machine="other"), a_run("4", arguments="drain")):
        write(kept, run)
    found = last_like(a_run("now"), read(kept))
    assert found is not None
    assert found.at == "2"
    assert last_like(a_run(machine="new"), read(kept)) is None


@pytest.mark.parametrize(
    "arguments", [["live", "--json"], ["live", "--runs", "3"], ["live", "--json", "--runs=3"]], ids=" ".join
)
def test_how_often_and_how_it_is_printed_is_not_what_is_measured(arguments: list[str]) -> None:
    assert what(arguments) == "live"


def test_the_order_of_options_is_not_what_is_measured() -> None:
    wanted = "filter --apart --filter 'body.n < 1' --size 8"
    assert what(["filter", "--size=8", "--filter", "body.n < 1", "--apart"]) == wanted
    then = a_run(arguments="filter --size 8 --apart --filter 'body.n < 1' --runs 3")
    assert last_like(a_run(arguments=wanted), [then]) == then
    assert last_like(a_run(arguments=wanted), [a_run(arguments="filter --size 9 --apart")]) is None


def test_figures_are_those_of_the_summary_and_of_each_peer() -> None:
    runs = [result("live", 100, 1000, seconds) for seconds in (1.0, 2.0, 4.0)]
    lines = [msgspec.json.encode(one).decode() for one in (*runs, summary(runs))]
    assert figures_of(lines) == {"live messages_per_second": 500.0}
    rows = [
        Row(peer="a", durability="", case="latency", per_second=9.0, p50_ms=1.5),
        Row(peer="b", durability="", absent="x"),
    ]
    assert figures_of(msgspec.json.encode(row).decode() for row in rows) == {
        "a latency per_second": 9.0, "a latency p50_ms": 1.5,
    }  # fmt: skip


def test_a_run_is_told_as_a_part_of_the_one_before() -> None:
    [head, rate, new] = against(a_run("2", rate=500.0, new=1.0), a_run("1", rate=1000.0))
    assert "against 1 " in head
    assert "0.50 of 1,000" in rate
    assert "not there before" in new
    [nothing] = against(a_run(), None)
    assert "nothing is recorded" in nothing


def test_a_recorded_run_is_what_the_next_one_of_the_same_is_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.jsonl")
    assert history.main(["--record", "floor", "--messages", "20000", "--size", "50"]) == 0
    assert "nothing is recorded yet of `floor --messages 20000 --size 50`" in capsys.readouterr().out
    [kept] = read(tmp_path / "history.jsonl")
    assert history.main(["floor", "--size", "50", "--messages", "20000", "--runs", "2"]) == 0
    *_, head, line = capsys.readouterr().out.splitlines()
    assert head == f"against {kept.at} on a machine like this ({machine()}):"
    assert f" of {kept.figures['floor messages_per_second']:,.6g}" in line
    assert read(tmp_path / "history.jsonl") == [kept], "it was not to be recorded"
    assert history.main(["floor", "--messages", "none"]) == 2


def test_a_kind_of_machine_names_no_machine() -> None:
    assert "cores" in machine()
    assert "/" not in machine()


def test_plots_are_made_of_what_has_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row(
            peer="hoot",
            durability="",
            case="live",
            runs=3,
            per_second=200.0,
            per_second_min=100.0,
            per_second_max=300.0,
        ),
        Row(peer="b<c", durability="", case="live", per_second=50.0, per_second_min=50.0, per_second_max=50.0),
        Row(peer="absent", durability="", absent="not on PATH"),
        Row(peer="hoot", durability="", case="latency", per_second=1.0, p50_ms=0.5, p99_ms=2.0),
    ]
    (tmp_path / "rows").write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    plot(tmp_path / "rows", tmp_path / "plots")
    assert sorted(one.name for one in (tmp_path / "plots").iterdir()) == ["latency.svg", "live.svg"]
    drawn = ET.fromstring((tmp_path / "plots" / "live.svg").read_text())
    texts = [text.text for text in drawn.iter() if text.tag.endswith("text")]
    assert texts == ["live: messages/s", "hoot", "200", "b<c", "50.00"]
    bars = [
        float(one.attrib["width"]) for one in drawn.iter() if one.tag.endswith("rect") and one.attrib["width"] != "100%"
    ]
    assert bars[0] == pytest.approx(4 * bars[1], rel=0.01)
    _, _, *table = capsys.readouterr().out.splitlines()
    assert table == [
        "| hoot | – | 200 [100–300] | – | – | 0.50 / 2.00 |  |",
        "| b<c | – | 50 | – | – | – |  |",
        "| absent | not on PATH | not on PATH | not on PATH | not on PATH | not on PATH |  |",
    ]
