"""Filters that cannot be: refused where they are given, with their place, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import InvalidRequest
from subscriber import Message
from tests.integration.asking import QUEUE, Site, asked, refused

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with asked(zookeeper, tmp_path_factory.mktemp("bad-filters")) as found:
        yield found


async def wondering(message: Message) -> bool:
    return True


@pytest.mark.parametrize(
    ("filter_", "place"),
    [
        ("hops > ", "at character 8"),
        ("a = 'x' OR b = 1 AND c = 2", "at character 18"),
        ({"any": [{"exact": {"a": "b"}}, {"sql": "NOPE(a)"}]}, "$.any[1].sql: the filter is wrong at character 1"),
        ([{"exact": {"a": 1}}], "at $[0].exact.a"),
        ("(" * 50_000, "at most"),
        ({"exact": {"a": "b"}, "suffix": {"a": "b"}}, "at $: a rule is an object with one dialect"),
        (b"TRUE", "a rule is an object"),
    ],
)
def test_a_filter_that_does_not_parse_is_refused_at_once_with_its_place(site: Site, filter_: Any, place: str) -> None:
    with site.unchanged():
        error = refused(InvalidRequest, "filter", site.subscriber().subscribe, QUEUE, filter=filter_)
        assert (error.code, error.retryable) == ("invalid_request", False)
        assert place in error.message
        refused(InvalidRequest, "filter", site.client.update_subscription, QUEUE, "nobody", filter=filter_)
        refused(InvalidRequest, "where must be a sync", site.subscriber().subscribe, QUEUE, where=wondering)
