"""What becomes of a message that its listener did not handle: the options of a subscription, and their limits.

A *failure* is a listener that raised or asked for the message again; a *crash* is a connection that broke while the
message was out. They are counted apart: one says something about the message, the other may be anybody's fault.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from delivery.errors import InvalidRequest
from delivery.model import NAME_MAX

Order = Literal["partition", "key"]
ORDERS: Final[tuple[str, ...]] = get_args(Order)


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Kept with the subscription, until a subscriber attaches with another one. Times are in seconds."""

    order: Order = "partition"
    """What waits for a message that was not handled: all behind it in its partition, or only what has its key."""
    first_seconds: float = 10.0
    """The pause after a message's first failure (Hedwig's)."""
    factor: float = 2.0
    """Each further failure of the same message makes the pause so many times longer."""
    longest_seconds: float = 600.0
    """No pause is longer."""
    jitter: float = 0.2
    """Each pause is drawn from this part below to this part above: many that failed together do not come together."""
    deliveries_max: int = 0
    """A message that failed so often is given up. 0 for never: everything behind it waits until it is handled."""
    crashes_max: int = 0
    """A message that was out alone so often when its subscriber went away is given up. 0 for never."""
    timeout_seconds: float = 0.0
    """An async listener that takes longer with a message, or a list, is cancelled and has failed. 0 for no limit."""
    dead_letters: bool = True
    """What is given up goes to the queue of dead letters; without them it is dropped, with a line in the host's log."""


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "first_seconds": (0.001, 86_400),
    "factor": (1, 100),
    "longest_seconds": (0.001, 7 * 86_400),
    "jitter": (0, 1),
    "timeout_seconds": (0, 7 * 86_400),
    "deliveries_max": (0, 1_000_000),
    "crashes_max": (0, 1_000_000),
}
_WHOLE: Final = ("deliveries_max", "crashes_max")
_SWITCHES: Final = ("dead_letters",)


def dead_letter_queue(queue: str, subscription: str) -> str:
    """The queue of a subscription's dead letters. Raises InvalidRequest where the two names leave none for it."""
    name = f"{queue}.{subscription}.dlq"
    if len(name) > NAME_MAX:
        raise InvalidRequest(
            f"the names of queue and subscription are too long together for dead letters: {name[:60]}… has {len(name)}"
            f" characters, {NAME_MAX} are the limit; use shorter ones, or RetryPolicy(dead_letters=False)"
        )
    return name


def check_policy(policy: object) -> RetryPolicy:
    """`policy` if all of it can be used. Raises InvalidRequest naming all that cannot."""
    if not isinstance(policy, RetryPolicy):
        raise InvalidRequest(f"retry must be a RetryPolicy, not {str(policy)[:60]}")
    wrong = wrong_in(policy)
    if wrong:
        raise InvalidRequest(wrong)
    return policy


def wrong_in(policy: RetryPolicy) -> str:
    """What of a policy cannot be used, empty when all can."""
    wrong = [
        f"{name} must be {low:g} to {high:g}, not {str(value)[:40]}"
        for name, (low, high) in _RANGES.items()
        if not _within(value := getattr(policy, name), low, high)
    ]
    if policy.order not in ORDERS:
        wrong.append(f"order must be one of {', '.join(ORDERS)}, not {str(policy.order)[:40]!r}")
    wrong += [f"{name} must be a whole number" for name in _WHOLE if not isinstance(getattr(policy, name), int)]
    wrong += [f"{name} must be True or False" for name in _SWITCHES if not isinstance(getattr(policy, name), bool)]
    if not wrong and policy.longest_seconds < policy.first_seconds:
        wrong.append("longest_seconds must not be below first_seconds")
    return "; ".join(wrong)


def _within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
