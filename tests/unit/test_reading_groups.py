"""Bodies that were stored before a transaction shows them: each a message with an id of its own, to every reader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from delivery.api.rest.administration import Topic
from delivery.api.rest.exchange import Exchange
from delivery.api.rest.ledgers import Ledgers
from delivery.api.rest.requests import Published, PublishRequest
from delivery.api.scanners import Cursor, Range
from delivery.batch import Header, encode, is_aside, without_asides
from delivery.cluster.partition import OwnedPartition
from delivery.dispatch.bounding import BoundedSource
from delivery.ids import first_id_at
from delivery.messaging import marks
from delivery.messaging.ids import number_of
from delivery.model import QueueSettings
from tests.histories import record_of
from tests.hosting import Scene, ScriptedCluster, play
from tests.readers import messages_of, pushed
from tests.writers import writers

TOPIC = Topic("ns", "t")
AGED = QueueSettings(ttl_seconds=1)


class Clients:
    """Programs that publish to a topic, and its partition."""

    def __init__(self, scene: Scene, owned: OwnedPartition) -> None:
        queues: Any = scene.cluster
        self.scene, self.owned = scene, owned
        self._exchange = Exchange(scene.publisher, scene.ownership, queues, writers(lambda _: "in_progress"), self.now)
        self.first, self.second = scene.now_ms * 1_000_000, scene.now_ms * 1_000_000 + 1

    def now(self) -> int:
        return self.scene.now_ms

    async def store(self, pointer: int, *bodies: bytes) -> None:
        self.scene.now_ms += 1000
        await self._exchange.store(TOPIC, PublishRequest(pointer, list(bodies)))

    async def show(self, pointer: int) -> Published:
        self.scene.now_ms += 1000
        record = await self._exchange.publish(TOPIC, PublishRequest(pointer, []))
        assert record is not None
        return record

    async def undo(self, record: Published) -> None:
        await self._exchange.rollback(TOPIC, record)

    async def publish(self, body: bytes) -> None:
        self.scene.now_ms += 1000
        await self._exchange.publish(TOPIC, PublishRequest(None, [body]))

    async def bodies(self, bytes_max: int = 1) -> list[bytes]:
        return [message.body for message in await pushed(self.owned, None, bytes_max)]


def told(story: Callable[[Clients], Awaitable[None]]) -> None:
    async def run(scene: Scene) -> None:
        await story(Clients(scene, await scene.ownership.acquire(TOPIC.queue, 0)))

    play(run, Scene(ScriptedCluster(record_of(1))))


def test_they_have_consecutive_ids_behind_that_of_the_publish() -> None:
    async def story(clients: Clients) -> None:
        await clients.store(clients.first, b"a", b"b")
        await clients.store(clients.second, b"never shown")
        await clients.publish(b"before")
        await clients.store(clients.first, b"c")
        record = await clients.show(clients.first)
        await clients.publish(b"behind")
        found = await pushed(clients.owned, None, 100_000)
        assert [one.body for one in found] == [b"before", b"a", b"b", b"c", b"behind"]
        shown = number_of(record.start_timestamp, record.start_sequence_id)
        assert [one.number for one in found[1:4]] == [shown + 1, shown + 2, shown + 3]
        assert {one.topic for one in found} == {""}
        assert [set(one.headers) for one in found] == [set(), {"hoot.tx"}, {"hoot.tx"}, {"hoot.tx"}, set()]

    told(story)


def test_a_group_of_many_batches_is_read_in_pieces_of_the_wanted_size() -> None:
    async def story(clients: Clients) -> None:
        bodies = [b"%06d" % number for number in range(5000)]
        await clients.store(clients.first, *bodies[:2000])
        for begin in range(2000, 5000, 500):
            await clients.store(clients.first, *bodies[begin : begin + 500])
        await clients.show(clients.first)
        await clients.publish(b"behind")
        found: list[Header] = []
        after, sizes = 0, []
        while (chunk := await clients.owned.read(after, 50_000)) is not None:
            sizes.append((len(chunk.data), len(chunk.headers)))
            found += without_asides(chunk.data, chunk.headers)[1]
            after = chunk.last_id
        assert all(size <= 50_000 or count == 1 for size, count in sizes)
        assert max(count for _, count in sizes) > 1
        assert all(one.last_id < other.base_id for one, other in pairwise(found))
        assert sum(one.count for one in found) == 5001
        assert await clients.bodies(50_000) == [*bodies, b"behind"]

    told(story)


def test_of_a_group_whose_first_bodies_are_too_old_to_be_kept_the_others_come_with_their_ids() -> None:
    async def story(clients: Clients) -> None:
        for body in (b"a", b"b", b"c"):
            await clients.store(clients.first, body)
        before = await clients.bodies()
        await clients.show(clients.first)
        await clients.publish(b"behind")
        whole = await pushed(clients.owned, None, 1)
        assert (before, [one.body for one in whole]) == ([], [b"a", b"b", b"c", b"behind"])
        for missing in (1, 3):
            until = first_id_at(clients.now() - (4 - missing) * 1000) - 1
            clients.scene.store.trim(clients.owned.key, AGED, clients.now() + 10_000, until)
            clients.scene.tail.drop(clients.owned.key)
            assert await pushed(clients.owned, None, 1) == whole[missing:]

    told(story)


def test_nothing_stored_shows_nothing_and_a_second_publish_shows_all_again() -> None:
    async def story(clients: Clients) -> None:
        await clients.show(clients.first)
        await clients.publish(b"between")
        assert await clients.bodies() == [b"between"]
        await clients.store(clients.first, b"a")
        await clients.show(clients.first)
        await clients.show(clients.first)
        assert await clients.bodies() == [b"between", b"a", b"a"]

    told(story)


def test_a_marker_that_covers_no_ids_for_its_messages_shows_them_to_nobody_here() -> None:
    async def story(clients: Clients) -> None:
        await clients.store(clients.first, b"a", b"b")
        ledger = await Ledgers().caught_up(clients.owned)
        marker = encode([marks.marker(clients.first, ledger.group(clients.first))], 0)
        await clients.scene.publisher.begin(TOPIC.queue, 0, marker, aside=True).wait()
        await clients.publish(b"behind")
        assert await clients.bodies() == await clients.bodies(1000) == [b"behind"]

    told(story)


def test_to_whom_only_the_newest_messages_matter_the_newest_of_a_group_come() -> None:
    async def story(clients: Clients) -> None:
        await clients.publish(b"before")
        await clients.store(clients.first, b"a", b"b", b"c")
        await clients.show(clients.first)
        chunk = await BoundedSource(clients.owned, 2).read(0, 1000)
        assert chunk is not None
        assert [one.body for one in messages_of(chunk.data, 0)] == [b"b", b"c"]

    told(story)


def test_bodies_that_nobody_sees_yet_and_notes_of_rollbacks_count_for_nothing_and_use_up_no_bound() -> None:
    async def story(clients: Clients) -> None:
        await clients.publish(b"first")
        await clients.publish(b"second")
        await clients.store(clients.first, *[b"not yet"] * 50)
        await clients.undo(await clients.show(clients.second))
        owned, end = clients.owned, clients.owned.watermark
        first, second = await pushed(owned, None, 1000)
        assert (first.body, second.body) == (b"first", b"second")
        assert (await owned.count(0, end), await owned.count(first.number, end)) == (2, 1)
        assert (await owned.bounds()).messages == 2
        assert await owned.locate(0, end, [1, 2, 3]) == [first.number, second.number, end]
        for bound, expected in ((1, [second]), (2, [first, second])):
            chunk = await BoundedSource(owned, bound).read(0, 100_000)
            assert chunk is not None
            assert messages_of(without_asides(chunk.data, chunk.headers)[0], 0) == expected
        await clients.show(clients.first)
        assert (await owned.bounds()).messages == await owned.count(0, owned.watermark) == 52

    told(story)


def test_who_refuses_batches_unread_does_not_refuse_what_shows_others() -> None:
    async def story(clients: Clients) -> None:
        await clients.store(clients.first, b"a", b"b")
        await clients.show(clients.first)
        chunk = await clients.owned.read(0, 1000, lambda _, dictionary: dictionary != b"\0")
        assert chunk is not None
        assert [header.count for header in chunk.headers] == [2]

    told(story)


def test_what_needs_to_be_looked_up_is_not_passed_on_in_the_turn_of_who_stored_it() -> None:
    async def story(clients: Clients) -> None:
        await clients.store(clients.first, b"a")
        stored = clients.owned.watermark
        chunk = clients.owned.newest(0, 1000)
        assert chunk is not None
        assert [is_aside(header) for header in chunk.headers] == [True]
        await clients.show(clients.first)
        assert clients.owned.newest(stored, 1000) is None
        assert clients.owned.has_news(stored)

    told(story)


def test_a_scanner_of_the_plain_calls_gets_them_from_any_place_on() -> None:
    async def story(clients: Clients) -> None:
        async def read(_: str, __: int, after: int, bytes_max: int) -> Any:
            return await clients.owned.read(after, bytes_max)

        async def scan(wanted: Range) -> list[bytes]:
            cursor, found = Cursor(TOPIC.queue, 0, wanted), []
            while await cursor.fill(read):
                found.append(cursor.pop().body)
            return found

        await clients.publish(b"before")
        await clients.store(clients.first, b"a", b"b", b"c")
        await clients.show(clients.first)
        everything = await pushed(clients.owned, None, 1)
        assert await scan(Range()) == [b"before", b"a", b"b", b"c"]
        assert await scan(Range(everything[2].number, everything[3].number)) == [b"b"]

    told(story)
