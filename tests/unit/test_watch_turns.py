"""What a host reads again of the attached subscriptions although nobody hinted at it."""

from __future__ import annotations

from delivery.dispatch.turns import EACH_TIME
from tests.unit.test_watch import ScriptedTree, Seen, looking


def test_of_many_subscriptions_a_part_is_read_each_time_without_a_hint_and_all_in_time() -> None:
    queues = [f"q{number:02}" for number in range(40)]
    tree = ScriptedTree(*queues)
    for queue in queues:
        tree.listeners[queue] = [f"s{number}" for number in range(EACH_TIME // 10)]

    async def story(seen: Seen) -> None:
        assert len(await seen.read()) == len(queues)
        read: list[str] = []
        for _ in range(4):
            await seen.watch.changed(0)
            found = await seen.read(*queues)
            assert len(found) == 10
            read += found
        assert sorted(read) == queues

    looking(tree, story)


def test_what_cannot_be_read_or_watched_is_read_each_time_without_a_hint() -> None:
    tree = ScriptedTree("a", "b", "c", "d")
    tree.listeners["a"] = [f"s{number}" for number in range(10 * EACH_TIME)]

    async def story(seen: Seen) -> None:
        tree.unreadable, tree.damaged = {("b", "mail")}, {"c"}
        await seen.read()
        for _ in range(3):
            await seen.watch.changed(0)
            assert {"b", "c"} <= (await seen.read()).keys()
        tree.unreadable.clear()
        tree.damaged.clear()
        await seen.watch.changed(0)
        assert {"b": ["mail"], "c": ["mail"]}.items() <= (await seen.read()).items()
        await seen.watch.changed(0)
        assert await seen.read() == {}, "after a queue with so many nothing more is read for a while"
        tree.throttled = True
        tree.change("d", "mail", "one more")
        await seen.after_hint()
        for topic in ("news", "sports"):
            tree.topics = (topic,)
            await seen.watch.changed(0)
            found = await seen.watch.read(frozenset())
            assert found["d"]["one more"].subscription.topics == (topic,)
        tree.throttled = False
        await seen.watch.changed(0)
        await seen.read()
        assert ("d", "one more") in tree.watchers, "there is room again"

    looking(tree, story)
