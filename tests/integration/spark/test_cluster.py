"""A Structured Streaming job on a real standalone cluster counts what a plain loop counts, whoever is killed."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.embedded import eventually
from tests.integration.spark.story import SECONDS, Story

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(3600)]


def test_hours_are_counted_as_a_plain_loop_counts_them_whoever_is_killed(story: Story) -> None:
    eventually(lambda: story.lag() is not None, "the stream is attached", SECONDS)
    for kill in (kill_executor, kill_host, kill_zookeeper, kill_driver):
        story.publish()
        story.under_way()
        kill(story)
        story.caught_up()
    counted = story.finish()
    assert counted == {hour: (count, story.delays[hour]) for hour, count in story.events.items()}


def kill_executor(story: Story) -> None:
    os.kill(story.spark.executors()[0], signal.SIGKILL)


def kill_host(story: Story) -> None:
    story.running.host.kill()
    story.running.host.start()


def kill_zookeeper(story: Story) -> None:
    story.running.zookeeper.kill()
    story.running.zookeeper.start()


def kill_driver(story: Story) -> None:
    story.kill_driver()
    story.driver = story.start_driver()
