"""Polls and reads of transactions against a model, over random histories on a partition in memory."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings, strategies as st

from tests.histories import LOOKS, STEPS, STEPS_STORING, Look, record_of, tell
from tests.hosting import Scene, ScriptedCluster, play


@settings(max_examples=50, deadline=None)
@given(st.one_of(STEPS, STEPS_STORING), LOOKS)
def test_everybody_reads_what_the_model_says(steps: Sequence[tuple[str, int]], looks: Sequence[Look]) -> None:
    play(lambda stage: tell(stage, steps, looks), Scene(ScriptedCluster(record_of(1))))
