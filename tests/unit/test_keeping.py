"""Who has what of a partition that members share is saved at once, and nothing is taken for saved that is not."""

from __future__ import annotations

import trio

from delivery.dispatch.keeping import KeptShares
from delivery.errors import BadVersion, Fenced
from delivery.metastore.managers.records import Share
from delivery.metastore.slots import ALL, as_ranges
from tests.checkpoints import Kept, ScriptedStates, key, taken

SHARES = (Share("a", as_ranges(ALL), 10),)
OTHERS = (Share("b", as_ranges(ALL), 20),)


def kept(store: ScriptedStates) -> KeptShares:
    """Nothing else saves: the keeper is not running."""
    keeper = Kept(store)
    keeper.start(0, taken(10))
    return KeptShares(keeper.workers[0], keeper)


def test_what_was_noted_is_saved_when_it_is_kept() -> None:
    async def story() -> None:
        store = ScriptedStates()
        ledger = kept(store)
        ledger.note_shares(10, SHARES)
        assert await ledger.keep() == SHARES
        assert store.states[key(0)].shares == SHARES
        assert await ledger.keep() == SHARES, "there is nothing new"
        assert len(store.writes) == 1

    trio.run(story)


def test_while_zookeeper_is_away_it_is_tried_again() -> None:
    async def story() -> None:
        store = ScriptedStates()
        store.away = 2
        ledger = kept(store)
        ledger.note_shares(10, SHARES)
        assert await ledger.keep() == SHARES

    trio.run(story)


def test_what_is_noted_later_is_not_taken_for_saved() -> None:
    async def story() -> None:
        store = ScriptedStates()
        ledger = kept(store)
        ledger.note_shares(10, SHARES)
        await ledger.keep()
        ledger.note_shares(20, OTHERS)
        assert store.states[key(0)].shares == SHARES
        assert await ledger.keep() == OTHERS

    trio.run(story)


def test_an_owner_that_may_save_no_more_begins_nothing() -> None:
    async def story(error: BadVersion | Fenced) -> None:
        store = ScriptedStates()
        store.refused[key(0)] = error
        ledger = kept(store)
        ledger.note_shares(10, SHARES)
        with trio.move_on_after(0.5) as waiting:
            await ledger.keep()
        assert waiting.cancelled_caught

    trio.run(story, BadVersion("an operator moved it"))
    trio.run(story, Fenced("a newer owner has it"))
