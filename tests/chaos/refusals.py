"""I13, what must be refused is refused, without an effect, and is told. Pure.

An intruder (intruding.py) asks for such things all through a run. Who refuses a call says why in the answer, who ends a
connection says why in its log. A host logs no single publish that it refuses but counts them by their codes;
`test_intruding` looks at that, which no fault disturbs.
"""

from __future__ import annotations

from typing import Final

from tests.chaos.story import Attempt, Story

IN_TROUBLE: Final = frozenset({"put-off", "unanswered", "untold"})
"""What may become of an attempt while something is wrong: it was refused for now, nobody answered, or the connection
ended with the process."""
ALWAYS: Final = frozenset({"put-off", "unanswered"})
"""A partition may be on its way to another host, and the machine busy."""


def refused_without_effect(story: Story) -> list[str]:
    """Every attempt got the answer that it deserves, if any, and each kind some time; nothing of it is left."""
    wrong = [
        f"the intruder's {attempt.kind} was answered with {attempt.outcome}, not {attempt.due}"
        for attempt in story.attempts if not _in_order(attempt, story)
    ]  # fmt: skip
    refused = {attempt.kind for attempt in story.attempts if attempt.outcome == attempt.due}
    wrong += [f"no {kind} was ever refused" for kind in sorted({one.kind for one in story.attempts} - refused)]
    if not story.attempts:
        wrong.append("nobody asked for what must be refused")
    return wrong + [f"{name} is there, which nobody made" for name in story.leftovers]


def _in_order(attempt: Attempt, story: Story) -> bool:
    allowed = IN_TROUBLE if story.troubled(attempt.at) else ALWAYS
    return attempt.outcome == attempt.due or attempt.outcome in allowed
