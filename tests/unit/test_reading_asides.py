"""The engine's own batches go to nobody who reads messages, and to an archive, which asks for them."""

from __future__ import annotations

import pytest

from delivery.api.reading import Reading
from delivery.batch import headers_in, open_batch
from delivery.errors import InvalidRequest
from delivery.publish.pending import Stored
from delivery.rpc.idl import load_idl
from tests.hosting import Scene, batch, play

IDL = load_idl("delivery")


def test_a_read_gives_the_engines_own_batches_to_who_asks_for_them() -> None:
    async def story(scene: Scene) -> None:
        reading = Reading(scene.ownership)

        async def topics(**options: bool) -> list[str]:
            reply = await reading.read(IDL.ReadRequest(queue="orders", partition=0, bytesMax=1000, **options))
            parts = [(at, header) for at, header in headers_in(reply.batches)]
            return [open_batch(reply.batches[at : at + header.length]).topics[0] for at, header in parts]

        assert isinstance(await scene.publish(b"message"), Stored)
        own = batch(b"mark", topic="hoot.mark")
        assert isinstance(await scene.publisher.begin("orders", 0, own, aside=True).wait(), Stored)
        assert await topics() == await topics(asides=False) == [""]
        assert await topics(asides=True) == ["", "hoot.mark"]
        with pytest.raises(InvalidRequest, match="a read with asides is one of everything"):
            await reading.read(IDL.ReadRequest(queue="orders", partition=0, topics=["a"], asides=True))

    play(story)
