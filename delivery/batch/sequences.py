"""The numbers that a producer gives its batches, by which a host stores each once and in order.

A number is a count, which rises by one from batch to batch, and above its 32 bits how often the producer began anew. It
does so behind a batch that it gave up: from the first count of a later beginning on, a host takes nothing of an earlier
one, so that a late copy of what was given up cannot come behind its successors.
"""

from __future__ import annotations

from typing import Final

_COUNT_BITS: Final = 32
_COUNT: Final = (1 << _COUNT_BITS) - 1


def begun_anew(sequence: int) -> int:
    """The number before the first one of the next beginning."""
    return ((sequence >> _COUNT_BITS) + 1) << _COUNT_BITS


def follows(sequence: int, last: int) -> bool:
    """Whether a batch may be taken when `last` was taken before it."""
    anew = sequence & _COUNT == 1 and sequence >> _COUNT_BITS > last >> _COUNT_BITS
    return anew or sequence == last + 1
