"""What applications import to publish, scan and administer: blocking here, the same names for trio in `aio`.

For example:

    from delivery import connect

    with connect("127.0.0.1:2181") as client:
        queue = client.create_queue("orders", partitions=4)
        stored = queue.put(b"one order", key=b"customer-7")
        with queue.publisher() as publisher:
            receipts = [publisher.put(body) for body in bodies]
        for message in queue.scanner():
            print(message.id, message.body)
"""

from __future__ import annotations

from delivery.client.admin import Backlog, QueueInfo, StoredPartition
from delivery.client.client import Client, connect
from delivery.client.deadletters import DeadLetterQueue, StoredLetter
from delivery.client.explaining import Explained
from delivery.client.groups import Member
from delivery.client.looking import SubscribedPartition, SubscriptionInfo
from delivery.client.outgoing import NewMessage
from delivery.client.placement import OwnedBy, Placement
from delivery.client.positions import Move
from delivery.client.publisher import Publisher
from delivery.client.queue import PartitionBounds, Queue
from delivery.client.receipts import PublishedMessage, Receipt
from delivery.client.replays import Stretch
from delivery.client.scanners import CombinedPartitionScanner, PartitionScanner, QueueScanner
from delivery.client.transactions import Participant, Transaction
from delivery.dispatch.observation import Callback, Observation
from delivery.dispatch.verdict import Limits, Verdict
from delivery.ids import Start

__all__ = [
    "Backlog",
    "Callback",
    "Client",
    "CombinedPartitionScanner",
    "DeadLetterQueue",
    "Explained",
    "Limits",
    "Member",
    "Move",
    "NewMessage",
    "Observation",
    "OwnedBy",
    "Participant",
    "PartitionBounds",
    "PartitionScanner",
    "Placement",
    "PublishedMessage",
    "Publisher",
    "Queue",
    "QueueInfo",
    "QueueScanner",
    "Receipt",
    "Start",
    "StoredLetter",
    "StoredPartition",
    "Stretch",
    "SubscribedPartition",
    "SubscriptionInfo",
    "Transaction",
    "Verdict",
    "connect",
]
