"""The MessageSender and the subscriber's inbox: what a listener gets across rewinds where a filter left ids out."""

from __future__ import annotations

from collections.abc import Callable
from random import uniform

from delivery.config import HostConfig
from delivery.dispatch.buffer import Buffer, Piece
from delivery.dispatch.ending import Ending
from delivery.dispatch.morgue import Morgue
from delivery.dispatch.outlet import Outlet
from delivery.dispatch.parking import Parking
from delivery.dispatch.retrier import Retrier
from delivery.dispatch.sender import MessageSender
from delivery.dispatch.target import STATUS_OK, More, Stream
from delivery.dispatch.window import Window
from delivery.errors import SubscriberUnreachable
from delivery.metastore.policy import RetryPolicy
from subscriber.inbox import PartitionInbox, Status
from tests.dispatch import AlwaysReady, NoCounters, NotedLedger, Reply, ScriptedPartition

OnAnswer = Callable[..., None]


class Listener(AlwaysReady):
    """Handles each push at once, unless it was told to let a connection break before it answers."""

    def __init__(self) -> None:
        self.inbox = PartitionInbox()
        self.answers = True
        self.began: list[Status | int] = []
        """Behind which id each push was handled."""

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, on_answer: OnAnswer, more: More | None = None
    ) -> None:
        self.began.append(self.inbox.begin((stream.epoch, run), after))
        position = self.inbox.end(int(data))
        on_answer(Reply(STATUS_OK, position) if self.answers else SubscriberUnreachable("the answer got lost"))


class Owner:
    """An owner of the partition; its pushes are a message each, whose text is the last id."""

    def __init__(self, listener: Listener, epoch: int, checkpoint: int) -> None:
        self.listener = listener
        self.window = Window(checkpoint, 100, 1000)
        stream, source, config, policy = Stream("q", "s", 0, epoch), ScriptedPartition([]), HostConfig(), RetryPolicy()
        morgue = Morgue(stream, source, None, config)
        retrier = Retrier(Parking(policy, (), uniform), source, morgue, NotedLedger(), config.push_bytes)
        self.sender = MessageSender(stream, self.window, NoCounters(), lambda _: None, retrier, Outlet(self.window))

    def run(self, *pieces: tuple[int, bool]) -> None:
        """A new run over pieces of the partition: up to which id, and whether the filter leaves anything of it."""
        self.window.rewind()
        buffer, endings = Buffer(100, 1000, lambda: None), list[Ending]()
        self.sender.begin(buffer, self.listener, endings.append, retries=False)
        for last_id, wanted in pieces:
            buffer.add(Piece(last_id, int(wanted), b"%d" % last_id if wanted else b""))
            self.sender.pump()
        assert bool(endings) is not self.listener.answers


def test_what_was_handled_does_not_come_again_though_a_filter_left_ids_out_between_two_rewinds() -> None:
    listener = Listener()
    first = Owner(listener, epoch=1, checkpoint=0)
    first.run((10, True), (20, False))
    listener.answers = False
    first.run((30, True))
    assert first.window.position == 20
    listener.answers = True
    Owner(listener, epoch=2, checkpoint=5).run((40, True))  # its checkpoint lags behind
    assert listener.began == [0, 10, 30]


def test_ids_that_nobody_handled_are_not_taken_for_filtered_ones() -> None:
    listener = Listener()
    Owner(listener, epoch=1, checkpoint=0).run((10, True))
    Owner(listener, epoch=2, checkpoint=500).run((510, True))
    Owner(listener, epoch=3, checkpoint=5).run((20, True))
    assert listener.began == [0, 500, 5]
