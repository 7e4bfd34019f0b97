"""All adapters, in the order of the table."""

from __future__ import annotations

from typing import Final

from delivery.bench.peers.base import Peer
from delivery.bench.peers.hoot import Hoot, HootOs
from delivery.bench.peers.kafka import Kafka
from delivery.bench.peers.nats import Nats, NatsAlways
from delivery.bench.peers.rabbitmq import RabbitMq, RabbitMqQuorum
from delivery.bench.peers.rabbitmq_streams import RabbitMqStreams
from delivery.bench.peers.redis import Redis, RedisAlways

EVERY: Final[dict[str, Peer]] = {
    peer.name: peer
    for peer in (
        Hoot(), HootOs(), Kafka(), RabbitMqStreams(), RabbitMqQuorum(), RabbitMq(), Redis(), RedisAlways(), Nats(),
        NatsAlways(),
    )
}  # fmt: skip
"""By name."""
