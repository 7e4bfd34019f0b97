"""A subscriber that is pushed to, and a publisher that is put to, with the instructions counted that they execute."""

from __future__ import annotations

import time
from array import array
from types import SimpleNamespace
from typing import Any, cast

from delivery.batch import encode, peek, stamp
from delivery.client.accumulator import Limits
from delivery.client.publisher import Publisher
from delivery.dispatch.target import STATUS_OK, Stream
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.request import Request
from delivery.model import Message
from delivery.rpc.protocol import Call
from subscriber.attachment import Attachment
from subscriber.listeners import check_listener
from subscriber.service import ListenerService
from subscriber.subscription import Event, Subscription
from tests.counting import counted
from tests.dispatch import push_struct
from tests.scripted_host import ScriptedHost, target

BODY = b"12345678"


def instructions_of_a_subscriber(messages: int) -> dict[str, int]:
    """By function, for one push of a batch with so many messages and a callback for each."""
    ids = array("q")

    def callback(message: Message) -> None:
        ids.append(message.number)

    service = _service(callback)
    with counted("delivery", "subscriber", threads=False) as found:
        _push(service, 1, 1)  # warms caches, and has instructions told of in what is called again
        found.clear()
        _push(service, 100, messages)
    assert len(ids) == 1 + messages
    return found.by_function()


def instructions_of_puts(messages: int) -> dict[str, int]:
    """By function, for a batch of so many messages, which the last `put` hands to the socket."""
    limits = Limits(linger=60, batch_messages=messages)
    with ScriptedHost() as host, Publisher(target(host), limits) as publisher:
        publisher.put(BODY)
        publisher.flush()
        with counted("delivery", threads=False) as found:
            for _ in range(messages):
                publisher.put(BODY)
        publisher.flush()
        assert host.sizes == [1, messages]
    return found.by_function()


def instructions_of_a_put_many(messages: int) -> dict[str, int]:
    """By function, for so many bodies at once."""
    with ScriptedHost() as host, Publisher(target(host), Limits(linger=60)) as publisher:
        publisher.put_many([BODY])
        with counted("delivery", threads=False) as found:
            publisher.put_many([BODY] * messages)
        publisher.flush()
        assert len(host.bodies) == 1 + messages
    return found.by_function()


def _service(callback: Any) -> ListenerService:
    here = SimpleNamespace(submit=lambda _, job: job(), post=_call, hop=None, task_of=None, clock=time.monotonic)
    service = ListenerService("mail", cast("Any", here), list[Event]().append)
    request = Request(queue="orders", partitions=None, starts={}, start=0, topics=())
    subscription = Subscription("mail", request, (check_listener(callback, "message"),))
    record = SubscriptionRecord(
        name="mail", queue="orders", generation="g", created_ms=1, starts={0: 0}, all_partitions=True, topics=()
    )
    listener = ListenerRecord(address="127.0.0.1", port=1, token="t")
    service.attached["orders"] = Attachment(subscription, record, listener)
    return service


def _push(service: ListenerService, base: int, messages: int) -> None:
    data = encode([(BODY, None, "news", b"")] * messages, 0)
    header = peek(data)
    assert header is not None
    push = push_struct(Stream("orders", "mail", 0, 1), 1, base - 1, stamp(header, data, base, 1)[1], None)
    answers: list[Any] = []
    service.begin(Call("Listener", "push", 0, SimpleNamespace(push=push))).then(answers.append)
    assert (answers[0].status, answers[0].position) == (STATUS_OK, base + messages - 1)


def _call(job: Any) -> None:
    job()
