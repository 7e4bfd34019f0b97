"""What applications import to receive messages by callbacks. The package `delivery` has the client that publishes.

    from subscriber import Message, Subscriber

    subscriber = Subscriber("audit", zookeeper="127.0.0.1:2181")
    subscriber.subscribe("flights")

    @subscriber.listener
    def on_flight(message: Message) -> None:
        print(message.id, message.topic, message.body)

    subscriber.run()

In a trio program AsyncSubscriber has the same names. Errors are those of `delivery.errors`.
"""

from __future__ import annotations

from delivery.filters import KEEP
from delivery.ids import MessageId, Start
from delivery.metastore.flow import Flow
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from subscriber.aio import AsyncSubscriber
from subscriber.manual import ManualMessage
from subscriber.outcomes import Reject, Retry
from subscriber.recording import Recorder
from subscriber.subscriber import Subscriber
from subscriber.subscription import Event, State, Subscription

__all__ = [
    "KEEP",
    "AsyncSubscriber",
    "Event",
    "Flow",
    "ManualMessage",
    "Message",
    "MessageId",
    "Recorder",
    "Reject",
    "Retry",
    "RetryPolicy",
    "Start",
    "State",
    "Subscriber",
    "Subscription",
]
