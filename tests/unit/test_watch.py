"""What a host sees of the attached subscriptions while queues come, go and are damaged."""

from __future__ import annotations

from typing import Any, cast

import trio

from delivery.dispatch.watch import SubscriptionWatch
from delivery.errors import CorruptRecord, UnknownQueue
from delivery.metastore.records import ListenerRecord, QueueRecord, SubscriptionRecord
from delivery.model import QueueSettings


class ScriptedTree:
    """Queues with a listener each; some vanish or are damaged when their listeners are asked for."""

    def __init__(self, *queues: str) -> None:
        self.names = list(queues)
        self.vanishing: set[str] = set()
        self.damaged: set[str] = set()
        self.watched: set[str] = set()

    def queues(self) -> list[str]:
        return list(self.names)

    def queue(self, name: str) -> QueueRecord:
        if name not in self.names:
            raise UnknownQueue(name)
        return QueueRecord(name, "g", 0, QueueSettings())

    def listeners(self, queue: str) -> list[str]:
        if queue in self.vanishing:
            self.names.remove(queue)
            raise UnknownQueue(queue)
        if queue in self.damaged:
            raise CorruptRecord(f"{queue} does not parse")
        return ["mail"]

    def subscription(self, queue: str, name: str) -> SubscriptionRecord:
        return SubscriptionRecord(
            name=name, queue=queue, generation="g", created_ms=0, starts={0: 0}, all_partitions=True, topics=()
        )

    def listener(self, queue: str, name: str) -> ListenerRecord:
        return ListenerRecord(address="127.0.0.1", port=1, token="t")

    def watch_children(self, path: str, hint: object) -> None:
        self.watched.add(path)

    watch_value = watch_children

    def unwatch(self, path: str, hint: object = None) -> None:
        self.watched.discard(path)


def read(tree: ScriptedTree, known: frozenset[str] = frozenset()) -> dict[str, list[str]]:
    async def story() -> dict[str, list[str]]:
        watch = SubscriptionWatch(cast("Any", tree), cast("Any", tree))
        watch.begin()
        return {queue: sorted(found) for queue, found in (await watch.read(known)).items()}

    return trio.run(story)


def test_all_queues_are_read_the_first_time() -> None:
    assert read(ScriptedTree("a", "b")) == {"a": ["mail"], "b": ["mail"]}


def test_a_queue_that_is_deleted_while_it_is_read_is_empty_and_keeps_no_other_from_being_read() -> None:
    tree = ScriptedTree("a", "b", "c")
    tree.vanishing.add("b")
    assert read(tree) == {"a": ["mail"], "b": [], "c": ["mail"]}
    assert not [path for path in tree.watched if "/b/" in path]


def test_a_known_queue_that_is_gone_is_reported_as_empty() -> None:
    assert read(ScriptedTree("a"), frozenset({"gone"})) == {"a": ["mail"], "gone": []}


def test_a_damaged_record_costs_its_own_queue_only() -> None:
    tree = ScriptedTree("a", "b")
    tree.damaged.add("a")
    assert read(tree) == {"a": [], "b": ["mail"]}
