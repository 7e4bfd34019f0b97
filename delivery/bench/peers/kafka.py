"""Kafka in KRaft mode, one broker, through confluent-kafka: batches that linger, and a consumer that commits behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from delivery.bench.checking import BenchFailed
from delivery.bench.peers.base import Inbox, Peer, Send, Take
from delivery.bench.peers.servers import LOOPBACK, a_port, running

_CLUSTER: Final = "4L6g3nShT-eMCtK--X86sw"
_AT_ONCE: Final = 5000
_COMMIT_MS: Final = 200
_SECONDS: Final = 60.0


class Kafka(Peer):
    """Kafka does not sync: it relies on its replicas, of which there are none here."""

    name = "kafka"
    durability = "page cache"
    library, module = "confluent-kafka", "confluent_kafka"
    commands = ("kafka-storage.sh", "kafka-server-start.sh")

    @contextmanager
    def server(self, folder: Path) -> Iterator[str]:
        """See Peer."""
        port, controller = a_port(), a_port()
        properties = folder / "server.properties"
        properties.write_text(
            f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{LOOPBACK}:{controller}\n"
            f"listeners=PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}\n"
            f"advertised.listeners=PLAINTEXT://{LOOPBACK}:{port}\ncontroller.listener.names=CONTROLLER\n"
            f"log.dirs={folder / 'data'}\noffsets.topic.replication.factor=1\ngroup.initial.rebalance.delay.ms=0\n"
        )
        self._format(properties)
        with running(folder, ["kafka-server-start.sh", str(properties)], port):
            yield f"{LOOPBACK}:{port}"

    def _format(self, properties: Path) -> None:
        command = ["kafka-storage.sh", "format", "-t", _CLUSTER, "-c", str(properties)]
        formatted = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if formatted.returncode:
            raise BenchFailed(f"Kafka's storage cannot be formatted:\n{formatted.stderr[-1000:]}")

    def server_version(self, address: str) -> str:
        """See Peer. Its protocol does not say it."""
        return "Kafka, KRaft"

    def prepare(self, address: str, queue: str, groups: Sequence[str]) -> None:
        """See Peer. Groups are made by who subscribes, and begin with the first message."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": address})  # whose calls end with it
        admin.create_topics([NewTopic(queue, 1, 1)])[queue].result(_SECONDS)

    @contextmanager
    def publisher(self, address: str, queue: str) -> Iterator[Send]:
        """See Peer."""
        from confluent_kafka import Producer

        common = {"bootstrap.servers": address, "acks": "all", "queue.buffering.max.messages": 10_000_000,
                  "queue.buffering.max.kbytes": 1 << 20}  # fmt: skip
        fast = Producer({**common, "linger.ms": 5, "batch.size": 1 << 20, "batch.num.messages": 100_000})
        prompt = Producer({**common, "linger.ms": 0, "max.in.flight": 5})  # what waits for its turn goes together

        def send(bodies: Iterable[bytes]) -> None:
            producer = fast if isinstance(bodies, Sequence) else prompt
            produce = producer.produce
            for body in bodies:
                produce(queue, body)
            if producer.flush(_SECONDS):
                raise BenchFailed("Kafka did not acknowledge everything")

        yield send

    def consume(self, address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
        """See Peer. `consume` gives what is there once something is, as `poll` would one by one."""
        from confluent_kafka import Consumer

        consumer = Consumer({
            "bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": _COMMIT_MS, "enable.auto.offset.store": False,
            "queued.max.messages.kbytes": 1 << 16, "queued.min.messages": 1_000_000, "fetch.message.max.bytes": 1 << 23,
        })  # fmt: skip
        consumer.subscribe([queue])
        while not inbox.over:
            self._take_some(consumer, take)
        consumer.close()  # which commits

    def _take_some(self, consumer: Any, take: Take) -> None:
        first = consumer.poll(0.1)
        if first is None:
            return
        messages = [first, *consumer.consume(_AT_ONCE, 0)]
        for message in messages:
            if message.error() is not None:
                raise BenchFailed(f"Kafka's consumer failed: {message.error()}")
            take(message.value())
        consumer.store_offsets(messages[-1])
