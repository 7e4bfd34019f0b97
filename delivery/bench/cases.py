"""The cases of `hoot bench` that are about one rate or latency. Each checks what was delivered before it tells it."""

from __future__ import annotations

import random
import time
from array import array
from typing import Any

import msgspec

from delivery.batch import encode, headers_in, open_batch
from delivery.bench.checking import BenchFailed
from delivery.bench.filtering import Mix
from delivery.bench.gauging import Cost
from delivery.bench.report import Result, result, with_latencies
from delivery.bench.stage import (
    Plan,
    Setup,
    attached,
    attached_all,
    beside_raw,
    check,
    firsts,
    publish_all,
    publish_paced,
    put_first,
    queue_for,
    rated,
)
from delivery.client import Queue
from delivery.client.accumulator import ROW_BYTES, Limits
from delivery.model import Message


def live(setup: Setup) -> Result:
    """From the first `put` to the last callback; acknowledged and checkpointed.

    Of several partitions each has got a message before.
    """
    expected = setup.messages + firsts(setup)
    with queue_for(setup) as queue, attached(setup, queue, "latest", expected=expected) as consumer:
        first, cost = put_first(setup, queue), Cost(setup.host_pid)
        begun = time.monotonic_ns()
        receipts = publish_all(setup, queue)
        found = consumer.outcome()
        told = cost.beside(rated("live", setup, setup.messages, found.last_ns - begun))
        check(setup, queue, first + receipts, consumer)
        touched = len({receipt.result().partition for receipt in receipts}) if first else None
        return beside_raw(setup, queue, msgspec.structs.replace(told, touched=touched))


def drain(setup: Setup) -> Result:
    """From the moment of attaching to the last callback. The memory is that of publishing the backlog, too."""
    with queue_for(setup) as queue:
        cost = Cost(setup.host_pid)
        receipts = publish_all(setup, queue)
        cost.begin()
        with attached(setup, queue, "earliest") as consumer:
            found = consumer.outcome()
            told = cost.beside(rated("drain", setup, setup.messages, found.last_ns - found.attached_ns))
            check(setup, queue, receipts, consumer)
        return beside_raw(setup, queue, told)


def latency(setup: Setup) -> Result:
    """The first tenth of the messages is not counted: caches and connections get warm."""
    with queue_for(setup) as queue, attached(setup, queue, "latest", listener="latency") as consumer:
        begun = time.monotonic_ns()
        receipts = publish_paced(setup, queue)
        found = consumer.outcome()
        check(setup, queue, receipts, consumer)
        told = rated("latency", setup, setup.messages, found.last_ns - begun)
        return with_latencies(told, found.latencies_ns[len(found.latencies_ns) // 10 :])


def fanout(setup: Setup) -> Result:
    """From the first `put` to the last callback of the slowest subscription."""
    with queue_for(setup) as queue, attached_all(setup, queue) as consumers:
        cost = Cost(setup.host_pid)
        begun = time.monotonic_ns()
        receipts = publish_all(setup, queue)
        last = max(consumer.outcome().last_ns for consumer in consumers)
        told = cost.beside(rated("fanout", setup, setup.messages * setup.subscriptions, last - begun))
        for consumer in consumers:
            check(setup, queue, receipts, consumer)
        return msgspec.structs.replace(told, subscriptions=setup.subscriptions)


def filter(setup: Setup) -> Result:  # noqa: A001 - the case's name
    """From the first message taken to the last.

    So it leaves out how long attaching takes, which is as long for a filter as without one.
    """
    mix = Mix(setup.size, setup.messages, setup.selectivity, setup.expression, setup.apart)
    with queue_for(setup) as queue:
        receipts, scanned = mix.publish(queue)
        task: dict[str, Any] = {"topics": mix.topics, "filter": setup.expression, "listener": "first"}
        with attached(setup, queue, "earliest", expected=len(receipts), **task) as consumer:
            found = consumer.outcome()
            check(setup, queue, receipts, consumer)
            return rated("filter", setup, scanned, max(1, found.last_ns - found.first_ns))


def scan(setup: Setup) -> Result:
    """Everything first, then one topic: caches are as warm for the one as for the other."""
    with queue_for(setup) as queue:
        _publish_topics(setup, queue)
        everything = _scanned(queue, setup.messages)
        seconds = _scanned(queue, -(-setup.messages // setup.topics), "t0")
        found = rated("scan", setup, setup.messages, round(seconds * 1e9))
        return msgspec.structs.replace(found, ratio_to_all=round(everything / seconds, 1))


def _publish_topics(setup: Setup, queue: Queue) -> None:
    """All messages, of each topic one in turn."""
    body = random.randbytes(setup.size)
    with queue.publisher() as publisher:
        for number in range(setup.messages):
            publisher.put(body, topic=f"t{number % setup.topics}")


def _scanned(queue: Queue, expected: int, *topics: str) -> float:
    """How many seconds a scan takes. Raises BenchFailed where other messages come than those of the topics."""
    begun = time.monotonic()
    with queue.scanner(topics=topics) as scanner:
        found = sum(not topics or message.topic in topics for message in scanner)
    if found != expected:
        raise BenchFailed(f"{found} messages came of {expected}")
    return time.monotonic() - begun


def floor(plan: Plan) -> Result:
    """The same packed batches decoded and the callback called in one process."""
    limits = Limits()
    count = max(1, min(limits.batch_messages, limits.batch_bytes // (plan.size + ROW_BYTES)))
    batch = encode([(bytes(plan.size), None, "", b"")] * count, 0)
    ids = array("q")

    def callback(message: Message) -> None:
        ids.append(message.number)

    begun = time.monotonic_ns()
    for _ in range(-(-plan.messages // count)):
        for at, header in headers_in(batch):
            for message in open_batch(batch[at : at + header.length], header).messages("bench"):
                callback(message)
    return result("floor", plan.size, len(ids), (time.monotonic_ns() - begun) / 1e9)
