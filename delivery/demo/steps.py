"""The steps of the demo's pipeline, each with what was to come out of it and what did. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from delivery.demo.flights import Tally, tally
from delivery.demo.records import Received

_WHOLE: Final = ("published", "acknowledged", "delivered")
"""What an audit counts that must be all messages of a subscription, whose `missing` and the like must be none."""
_NONE: Final = ("missing", "stray", "waiting", "parked", "dead")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    name: str
    what: str
    """The messages that are counted."""
    expected: int
    found: int
    seconds: float
    note: str = ""
    wrong: str = ""
    """What else is not as it should be."""

    @property
    def agrees(self) -> bool:
        """Whether all is as it should be."""
        return self.expected == self.found and not self.wrong


def heard(what: str, expected: Tally, records: Sequence[Received], seconds: float) -> Step:
    """What a new subscription was called with: each flight once, with what the file says of them."""
    keys = {(record.partition, record.number) for record in records}
    found = tally((record.carrier, record.delay) for record in records)
    wrong = []
    if len(keys) < len(records):
        wrong.append(f"{len(records) - len(keys):,} were delivered again without a fault")
    if list(found.values()) != [expected]:
        wrong.append("what its callbacks read differs from the file")
    return Step(
        name="deliver", what=what, expected=expected.flights, found=len(keys), seconds=seconds, wrong="; ".join(wrong)
    )


def audited(subscription: str, expected: int, counts: Mapping[str, int], seconds: float) -> Step:
    """What the audit says of a subscription, which has had so many messages."""
    wrong = [f"{name} {counts.get(name, 0):,}" for name in _WHOLE if counts.get(name, 0) != expected]
    wrong += [f"{name} {counts[name]:,}" for name in _NONE if counts.get(name, 0)]
    return Step(
        name="audit", what=f"published to, acknowledged and recorded by {subscription}", expected=expected,
        found=counts.get("delivered", 0), seconds=seconds, note=f"{counts.get('duplicates', 0):,} recorded twice",
        wrong="; ".join(wrong),
    )  # fmt: skip


def differing(steps: Iterable[Step]) -> list[str]:
    """A line for each step that is not as it should be."""
    return [
        f"{step.name}, {step.what}: {step.found:,} of {step.expected:,}" + (f"; {step.wrong}" if step.wrong else "")
        for step in steps
        if not step.agrees
    ]
