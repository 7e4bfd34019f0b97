"""The generations of topics (seed 003): one number per name, which outlives the topics of that name.

A topic's record goes with its queue. What stays is the generation that was given out last, so that a topic that is made
again has a higher one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from delivery.errors import BadVersion
from delivery.metastore.errors import KeyExists, NoKey
from delivery.metastore.managers.records import Codec
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.versions import Version
from delivery.model import check_name, lay_out

TABLE: Final = "topics"
GENERATION_MAX: Final = 2**31 - 1


class LastGeneration(msgspec.Struct, frozen=True):
    """The generation that was given out last under a name."""

    generation: int


lay_out(LastGeneration)


def _wrong(last: LastGeneration) -> str | None:
    return None if 1 <= last.generation <= GENERATION_MAX else f"generation {last.generation}"


_CODEC = Codec("generation", LastGeneration, _wrong, TABLE)


class TopicGenerations:
    """Gives out generations. Blocking and thread-safe."""

    def __init__(self, store: MetaStore) -> None:
        self._table = store.create_table(TABLE)

    def take(self, queue: str) -> int:
        """The next generation of the topic whose queue has that name; no other caller gets the same.

        Raises BadVersion when somebody else took one at the same moment, to be tried again; CorruptRecord,
        InvalidRequest.
        """
        key = check_name("queue", queue)
        try:
            found = self._table.get(key)
        except NoKey:
            taken, version = 1, Version.NEW
        else:
            taken, version = _CODEC.decode(found.value, key).generation + 1, found.version
        try:
            self._table.put(key, _CODEC.encode(LastGeneration(taken)), version, whole=True)
        except (KeyExists, NoKey) as error:
            raise BadVersion(f"another topic {queue!r} is being made at this moment") from error
        return taken
