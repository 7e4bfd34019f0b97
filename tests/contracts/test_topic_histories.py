"""Topics and transactions on every store: random histories, in which each reader sees what the model says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from hypothesis import HealthCheck, given, settings

from delivery import wall
from delivery.storage.base import MessageStore
from tests.histories import LOOKS, STEPS_STORING, Look, record_of, tell
from tests.hosting import FaultyStore, Scene, ScriptedCluster, play


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(STEPS_STORING, LOOKS)
def test_everybody_reads_what_the_model_says(
    host: Callable[[], MessageStore], steps: Sequence[tuple[str, int]], looks: Sequence[Look]
) -> None:
    """Each history has a queue of its own in the same store."""
    stage = Scene(ScriptedCluster(record_of(1)), cast("FaultyStore", host()))
    stage.now_ms = wall.ms()  # HBase has a clock of its own for what is too old
    play(lambda told: tell(told, steps, looks), stage, seconds=60.0)
