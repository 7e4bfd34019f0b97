"""The trio face does what the blocking one does."""

from __future__ import annotations

import secrets

import pytest
import trio

from delivery.client import aio
from delivery.errors import ScannerClosed
from delivery.local import HostProcess

pytestmark = pytest.mark.integration
SECONDS = 30.0


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_the_trio_face_does_the_same(address: str, host: HostProcess) -> None:
    name = f"trio-{secrets.token_hex(4)}"

    async def story() -> None:
        with trio.fail_after(SECONDS):
            async with await aio.connect(address) as client:
                queue = await client.create_queue(name, partitions=2)
                stored = await queue.put(b"one", key=b"k")
                async with await queue.publisher(linger_ms=1) as publisher:
                    receipts = [await publisher.put(body) for body in numbered(2000)]
                    results = [await receipt.result() for receipt in receipts]
                assert len({(one.partition, one.id) for one in results}) == 2000
                await queue.put_many([b"last"])
                async with await queue.scanner() as scanner:
                    found = [message.body async for message in scanner]
                assert sorted(found) == sorted([b"one", b"last", *numbered(2000)])
                assert (await queue.bounds(stored.partition)).messages > 0
                with pytest.raises(ScannerClosed):
                    await scanner.next()
                async with await queue.partition_scanner(0, start="latest", follow=True) as scanner:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(lambda: queue.put(b"new", partition=0))
                        message = await scanner.next()
                    assert message is not None
                    assert message.body == b"new"
                    with trio.move_on_after(0.1) as scope:
                        await scanner.next()
                    assert scope.cancelled_caught
                assert name in await client.queues()
                assert (await client.queue_info(name)).record.settings.partitions == 2
                made = await client.create_subscription(name, "later", partitions=1, start="earliest")
                assert (made.starts, await client.subscriptions(name)) == ({1: 0}, ["later"])
                assert (await client.parked(name, "later"), await client.release(name, "later")) == ([], 0)
                taken = await client.create_snapshot(name, "later", "now")
                assert (await client.snapshots(name, "later"), await client.snapshot(name, "later", "now")) == (
                    {"now": taken}, taken,
                )  # fmt: skip
                [back] = await client.restore_snapshot(name, "later", "now", force=True)
                assert (back.partition, back.before, back.after) == (1, 0, 0)
                await client.delete_snapshot(name, "later", "now")
                [stretch] = await client.replay(name, "later", "shadow", start="earliest", speed="max")
                assert stretch.messages == (await queue.bounds(1)).messages
                assert await client.promote(name, "shadow", dry_run=True) == (
                    "later", await client.seek(name, "later", stretch.after + 1, dry_run=True)
                )  # fmt: skip
                await client.delete_subscription(name, "shadow")
                letters = await client.dead_letters(name, "later")
                assert await letters.letters() == []
                await letters.redrive([])
                await letters.drop([])
                await client.delete_queue(name)

    trio.run(story)
