"""Metrics stay bounded whatever names users choose, and live values are asked for when somebody scrapes."""

from __future__ import annotations

from delivery.metrics import LABELS_MAX, Lag, Metrics, QueueBacklog


def lines(metrics: Metrics, start: str) -> list[str]:
    return [line for line in metrics.exposition().decode().splitlines() if line.startswith(start)]


def test_counters_add_up_by_queue() -> None:
    metrics = Metrics()
    metrics.stored("orders", 100, 5000)
    metrics.stored("orders", 50, 2500)
    metrics.committed(2, 0.003)
    assert lines(metrics, "hoot_published_messages_total") == ['hoot_published_messages_total{queue="orders"} 150.0']
    assert lines(metrics, "hoot_published_batches_total") == ['hoot_published_batches_total{queue="orders"} 2.0']
    assert lines(metrics, "hoot_commit_seconds_count") == ["hoot_commit_seconds_count 1.0"]


def test_beyond_the_limit_all_names_share_one_label() -> None:
    metrics = Metrics()
    for n in range(LABELS_MAX + 500):
        metrics.pushed(f"q{n}", "s", 1, 10)
    found = lines(metrics, "hoot_pushed_messages_total{")
    assert len(found) == LABELS_MAX + 1
    assert 'hoot_pushed_messages_total{queue="other",subscription="other"} 500.0' in found


def test_gauges_mirror_what_is_now() -> None:
    metrics, values = Metrics(), [1.0]
    metrics.watch("connections", "Open now", lambda: values[0])
    values[0] = 7.0
    assert lines(metrics, "hoot_connections") == ["hoot_connections 7.0"]


def test_the_lag_of_a_subscription_is_that_of_its_worst_partition() -> None:
    metrics = Metrics()
    metrics.watch_lag(
        lambda: [Lag("orders", "mail", 1.5, 10), Lag("orders", "mail", 4.0, 5), Lag("orders", "log", 0, 0)]
    )
    assert 'hoot_lag_seconds{queue="orders",subscription="mail"} 4.0' in lines(metrics, "hoot_lag")
    out = lines(metrics, "hoot_unacknowledged")
    assert 'hoot_unacknowledged_messages{queue="orders",subscription="mail"} 15.0' in out


def test_the_backlog_of_a_queue_is_that_of_its_worst_partition_and_full_ones_are_counted() -> None:
    metrics = Metrics()
    found = [
        QueueBacklog("orders", 7, 10, True),
        QueueBacklog("orders", 5, 900, True),
        QueueBacklog("log", 0, 0, False),
    ]
    found += [QueueBacklog(f"q{number}", 1, 1, True) for number in range(LABELS_MAX + 100)]
    metrics.watch_backlogs(lambda: found)
    assert 'hoot_queue_backlog_messages{queue="orders"} 7.0' in lines(metrics, "hoot_queue")
    assert 'hoot_queue_backlog_bytes{queue="orders"} 900.0' in lines(metrics, "hoot_queue")
    assert 'hoot_queue_full_partitions{queue="orders"} 2.0' in lines(metrics, "hoot_queue")
    assert 'hoot_queue_full_partitions{queue="log"} 0.0' in lines(metrics, "hoot_queue")
    assert 'hoot_queue_full_partitions{queue="other"} 102.0' in lines(metrics, "hoot_queue")
    assert len(lines(metrics, "hoot_queue_full_partitions{")) == LABELS_MAX + 1


def test_two_hosts_in_one_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.stored("orders", 1, 1)
    assert lines(second, "hoot_published_messages_total{") == []
