"""docs/reliability.md tells what is asked where: its tables name what is there, and all of it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.chaos.checks import CHECKS
from tests.simulation.bugs import PLANTED

TOP = Path(__file__).resolve().parents[2]
ASKED = {*range(1, 11), 14, *range(17, 22), *range(30, 34), 38, 39}
"""The rows of the fault table that real processes are to be put through."""
SIMULATED = [f"I{number}" for number in (*range(1, 10), 11, *range(14, 17))]


def table(first: str) -> dict[str, list[str]]:
    """The rows of the page's tables whose first cell matches: the other cells by it."""
    lines = (TOP / "docs" / "reliability.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[1:] for row in cells if re.fullmatch(first, row[0])}


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def rows_of_tests() -> dict[int, set[str]]:
    """By row the modules of tests/chaos that have a test named for it."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in (TOP / "tests" / "chaos").glob("test_*.py"):
        for numbers in re.findall(r"^def test_rows?_(\d+(?:_and_\d+)*)_", path.read_text(), re.MULTILINE):
            for number in numbers.split("_and_"):
                found[int(number)].add(path.stem)
    return found


def test_every_row_of_the_fault_table_that_is_to_be_asked_is_asked_where_the_page_says() -> None:
    told = {int(row): quoted(cells[-1]) for row, cells in table(r"\d+").items()}
    assert told == rows_of_tests()
    assert set(told) == ASKED


def test_every_invariant_has_its_checks() -> None:
    told = {invariant: quoted(cells[2]) for invariant, cells in table(r"I\d+").items()}
    assert list(told) == [f"I{number}" for number in range(1, 17)]
    checked: dict[str, set[str]] = defaultdict(set)
    for invariants, _, check in CHECKS:
        for invariant in invariants.split():
            checked[invariant].add(check.__name__)
    assert {invariant: checks for invariant, checks in told.items() if checks} == checked


@pytest.mark.parametrize("invariant", SIMULATED)
def test_every_invariant_of_the_simulation_is_broken_by_a_planted_mistake(invariant: str) -> None:
    """That it is found as this one, tests/simulation/test_simulation.py says."""
    planted = quoted(table(invariant)[invariant][1])
    assert planted
    assert all(invariant in PLANTED[name].breaks.split() for name in planted)


STARRED = """
TestMetadataManager.testSubscriptionData TestUpdateSubscriptionState.testConsumeWhenTopicRelease
TestUpdateSubscriptionState.testConsumeWhenHubShutdown TestHedwigHub.testServerRedirect TestHedwigHub.testServerFailover
TestHedwigHub.testConsumedMessagesInOrder TestHedwigHub.testStopDelivery TestHedwigHub.testCreateSubscriptionFailure
testAttachToSubscriptionFailure TestPubSubClient.testSyncPublishWithResponse
TestPubSubClient.testSyncSubscribeForceAttach TestThrottlingDelivery.testServerSideThrottle
TestThrottlingDelivery.testThrottleWithServerSideFilter TestMessageFilter.testServerSideMessageFilter
MessageBoundedPersistenceTest.testBasicBounding testMultipleSubscribers
"""
"""What Hedwig asks of subscriptions, as far as it matters most."""


def test_what_hedwig_asks_of_subscriptions_is_asked_by_tests_that_are_there() -> None:
    rows = table(r"`[A-Z]\w+.*")
    there = {
        name
        for path in (TOP / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (\w+)", path.read_text(), re.MULTILINE)
    }
    named = [quoted(cells[0]) for cells in rows.values()]
    assert all(names and names <= there for names in named), [names - there for names in named if not names <= there]
    assert set(STARRED.split()) <= set.union(*map(quoted, rows))
