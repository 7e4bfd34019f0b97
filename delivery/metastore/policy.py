"""What becomes of a message that its listener did not handle: the options of a subscription, and their limits.

A *failure* is a listener that raised or asked for the message again; a *crash* is a connection that broke while the
message was out. They are counted apart: one says something about the message, the other may be anybody's fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

from delivery.errors import InvalidRequest
from delivery.model import subscriptions_own

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
    """A listener that takes longer with a message, or a list, has failed; an async one is cancelled. 0 for no limit."""
    ack_timeout_seconds: float = 0.0
    """What is to be acknowledged by hand, and is not so long after its listener returned, has failed. 0: no limit."""
    dead_letters: bool = True
    """What is given up goes to the queue of dead letters; without them it is dropped, with a line in the host's log."""


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "first_seconds": (0.001, 86_400),
    "factor": (1, 100),
    "longest_seconds": (0.001, 7 * 86_400),
    "jitter": (0, 1),
    "timeout_seconds": (0, 7 * 86_400),
    "ack_timeout_seconds": (0, 7 * 86_400),
    "deliveries_max": (0, 1_000_000),
    "crashes_max": (0, 1_000_000),
}
_WHOLE: Final = ("deliveries_max", "crashes_max")
_SWITCHES: Final = ("dead_letters",)
_DEFAULTS: Final = msgspec.structs.asdict(RetryPolicy())

RetryGiven = RetryPolicy | Mapping[str, object] | None
"""A policy, those fields of one that are to change (None in it: the default), or None to leave it as it is."""


DEAD_LETTERS: Final = ".dlq"
"""How the names of queues of dead letters end."""


def dead_letter_queue(queue: str, subscription: str) -> str:
    """The queue of a subscription's dead letters. Raises InvalidRequest where the two names leave none for it."""
    instead = "use shorter ones, or RetryPolicy(dead_letters=False)"
    return subscriptions_own(queue, subscription, DEAD_LETTERS, "dead letters", instead)


def retry_asked(given: RetryGiven) -> Mapping[str, object]:
    """The fields that are to change, by name; none to leave a policy as it is.

    A RetryPolicy means all of its fields, a mapping those it names, each None in it the default. Raises InvalidRequest
    for what can be no field, naming all; whether the fields fit together depends on the rest (`changed_policy`).
    """
    if given is None:
        return {}
    if isinstance(given, RetryPolicy):
        fields: Mapping[str, object] = msgspec.structs.asdict(given)
    elif isinstance(given, Mapping):
        fields = {str(name): value for name, value in given.items()}
    else:
        raise InvalidRequest(f"retry must be a RetryPolicy or a mapping of its fields, not {str(given)[:60]}")
    if unknown := sorted(set(fields) - set(_DEFAULTS)):
        raise InvalidRequest(f"a RetryPolicy has no {', '.join(unknown)[:60]}: it has {', '.join(_DEFAULTS)}")
    fields = {name: _DEFAULTS[name] if value is None else value for name, value in fields.items()}
    wrong = wrong_in(given) if isinstance(given, RetryPolicy) else "; ".join(_wrong_fields(fields))
    if wrong:
        raise InvalidRequest(wrong)
    return fields


def changed_policy(policy: RetryPolicy, asked: Mapping[str, object], queue: str, subscription: str) -> RetryPolicy:
    """A subscription's `policy` with these fields changed. Raises InvalidRequest when they do not fit together."""
    if not asked:
        return policy
    changed = msgspec.structs.replace(policy, **asked)
    if wrong := wrong_in(changed):
        raise InvalidRequest(wrong)
    if changed.dead_letters:
        dead_letter_queue(queue, subscription)
    return changed


def wrong_in(policy: RetryPolicy) -> str:
    """What of a policy cannot be used, empty when all can."""
    wrong = _wrong_fields(msgspec.structs.asdict(policy))
    if not wrong and policy.longest_seconds < policy.first_seconds:
        wrong.append("longest_seconds must not be below first_seconds")
    return "; ".join(wrong)


def _wrong_fields(fields: Mapping[str, object]) -> list[str]:
    wrong = [
        f"{name} must be {low:g} to {high:g}, not {str(value)[:40]}"
        for name, (low, high) in _RANGES.items()
        if name in fields and not _within(value := fields[name], low, high)
    ]
    if fields.get("order", ORDERS[0]) not in ORDERS:
        wrong.append(f"order must be one of {', '.join(ORDERS)}, not {str(fields['order'])[:40]!r}")
    wrong += [f"{name} must be a whole number" for name in _WHOLE if not isinstance(fields.get(name, 0), int)]
    wrong += [f"{name} must be True or False" for name in _SWITCHES if not isinstance(fields.get(name, True), bool)]
    return wrong


def _within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
