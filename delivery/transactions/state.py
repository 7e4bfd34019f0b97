"""What is kept of all transactions, so that a host that takes over goes on where the one before it ended.

Write pointers are given out from a lease: `leased` is kept before the first of them is given, so that beginning a
transaction writes nothing, and no pointer is given out twice whoever manages.
"""

from __future__ import annotations

import msgspec

from delivery.model import lay_out
from delivery.transactions.limits import TIMEOUT_MS_MAX


class State(msgspec.Struct, frozen=True):
    """All transactions, as of one moment."""

    next_pointer: int = 1
    """Pointers from here to `leased` may have been given out, though nothing here names them."""
    leased: int = 0
    """No pointer above this one was given out."""
    read_pointer: int = 0
    """The highest pointer of a transaction that has ended."""
    in_progress: dict[int, int] = {}
    """Per write pointer until when, in ms since 1970."""
    invalid: list[int] = []
    """Write pointers whose messages nobody may see, sorted."""
    changed: dict[int, int] = {}
    """Per digest of a key the pointer below which all transactions had begun before the key's last change."""
    forgotten: int = 0
    """The highest of what was in `changed` and had to make room."""
    finished: dict[int, bool] = {}
    """The last transactions that ended and are not invalid, oldest first: whether each was committed."""

    def taken_over(self, now: int) -> State:
        """What the next manager begins with: whatever may have begun goes on.

        What the former one had begun and not kept may have the longest time there is.
        """
        unknown = dict.fromkeys(range(self.next_pointer, self.leased + 1), now + TIMEOUT_MS_MAX)
        return msgspec.structs.replace(
            self, next_pointer=self.leased + 1, in_progress={**self.in_progress, **unknown}
        )  # fmt: skip


lay_out(State)


def check_state(state: State) -> str | None:
    """What is wrong with a state, None when nothing is."""
    pointers = (state.next_pointer, state.leased + 1, state.read_pointer, state.forgotten, *state.in_progress)
    if min(pointers) < 0 or state.invalid != sorted(state.invalid) or max(pointers) >= 2**63:
        return str(state)[:200]
    return None if state.next_pointer <= state.leased + 1 else f"pointer {state.next_pointer} of {state.leased}"
