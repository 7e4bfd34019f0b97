r"""Patterns: `LIKE` of the expressions (`%` any characters, `_` one, `\` before either for itself), `*` of topics.

Both become regular expressions that never go back over what matched: the time is bounded by text times pattern, where
a plain `.*a.*b.*c` could take the text's length to the power of its stars.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Matcher = Callable[[str], bool]


def like(pattern: str) -> Matcher:
    """Whether a whole text matches a pattern of `LIKE`, case and all."""
    runs, at = [""], 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\" and pattern[at + 1 : at + 2] in ("%", "_"):
            at += 1
            runs[-1] += re.escape(pattern[at])
        elif character == "%":
            runs.append("")
        else:
            runs[-1] += "." if character == "_" else re.escape(character)
        at += 1
    return _matcher(runs)


def stars(pattern: str) -> Matcher:
    """Whether a whole text matches `pattern`, in which each `*` stands for any characters or none."""
    return _matcher([re.escape(run) for run in pattern.split("*")])


def _matcher(runs: list[str]) -> Matcher:
    """Of regular expressions of a fixed length each, with anything between them."""
    first, *between = runs
    middle = "".join(f"(?>.*?{run})" for run in between[:-1] if run)
    last = f".*{between[-1]}" if between else ""
    found = re.compile(f"{first}{middle}{last}", re.DOTALL).fullmatch
    return lambda text: found(text) is not None
