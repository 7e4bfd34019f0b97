"""Hypothesis strategies that several test files share: messages, batches, and the ids they are stamped with."""

from __future__ import annotations

import string
from collections.abc import Sequence

from hypothesis import settings, strategies as st

from delivery.batch import Header, Row, encode, peek, stamp
from delivery.ids import ID_MAX
from delivery.model import encode_headers


def times(factor: float) -> settings:
    """For a test that takes more or fewer examples than others: so many times those of the profile (conftest)."""
    return settings(max_examples=round(factor * settings().max_examples))


NAME_CHARACTERS = string.ascii_letters + string.digits + "._-"

names = st.text(NAME_CHARACTERS, min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))
topics = st.one_of(st.just(""), st.sampled_from(["JFK", "EWR", "LGA"]), names)
keys = st.one_of(st.none(), st.binary(max_size=20))
header_maps = st.dictionaries(st.text(min_size=1, max_size=20), st.binary(max_size=40), max_size=3)
blocks = header_maps.map(encode_headers)
bodies = st.one_of(st.binary(max_size=60), st.sampled_from([b"", b"x" * 100]))
rows = st.tuples(bodies, keys, topics, blocks)
# Mostly small; some with the same short body many times over, which is decoded on a path of its own.
row_lists = st.one_of(
    st.lists(rows, min_size=1, max_size=12),
    st.tuples(rows, st.integers(200, 600)).map(lambda pair: [pair[0]] * pair[1]),
)
partitions = st.integers(0, 32766)
base_ids = st.integers(1, ID_MAX - 70_000)
epochs = st.integers(1, 2**62)


def stamped(
    some_rows: Sequence[Row],
    base_id: int,
    *,
    epoch: int = 1,
    partition: int = 0,
    producer: tuple[int, int] = (0, 0),
    spare: int = 0,
) -> tuple[Header, bytes]:
    """The batch of some rows as its owner stores it. `producer` is its id and sequence.

    It covers `spare` ids more than it has rows, which only a batch of the engine's own may.
    """
    raw = encode(some_rows, partition, *producer, span=len(some_rows) + spare)
    header = peek(raw)
    assert header is not None
    return stamp(header, raw, base_id, epoch)


@st.composite
def stamped_batches(draw: st.DrawFn) -> tuple[Header, bytes]:
    """Any batch, stamped."""
    producer = draw(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)))
    return stamped(draw(row_lists), draw(base_ids), epoch=draw(epochs), partition=draw(partitions), producer=producer)
