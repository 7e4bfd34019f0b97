"""What is under way outlives a ZooKeeper that is away for a while, and nothing else."""

from __future__ import annotations

import pytest

from delivery.errors import HootError, InvalidRequest, MetadataUnavailable
from delivery.spark import planning
from delivery.spark.planning import patiently


class Fails:
    def __init__(self, *errors: HootError) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_what_may_go_away_is_waited_for_and_what_does_not_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PAUSE_SECONDS", 0)
    assert patiently(Fails(*[MetadataUnavailable("away")] * 3), 60) == "done"
    refused = Fails(InvalidRequest("never"), InvalidRequest("never"))
    with pytest.raises(InvalidRequest):
        patiently(refused, 60)
    assert len(refused.errors) == 1


def test_without_patience_there_is_one_attempt() -> None:
    away = Fails(*[MetadataUnavailable("away")] * 2)
    with pytest.raises(MetadataUnavailable):
        patiently(away, 0)
    assert len(away.errors) == 1
