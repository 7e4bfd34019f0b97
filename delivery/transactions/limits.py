"""The bounds of transactions. Together they keep all that is known of them within one entry of the MetaStore."""

from __future__ import annotations

from typing import Final

TIMEOUT_MS: Final = 30_000
"""Of a transaction that asks for none."""
TIMEOUT_MS_MAX: Final = 600_000
IN_PROGRESS_MAX: Final = 4096
UNFINISHED_MAX: Final = 12_000
"""In progress and invalid, together: whatever is in progress may become invalid."""
CHANGES_MAX: Final = 1000
"""Keys that one transaction says it changed."""
CHANGE_BYTES_MAX: Final = 32 * 1024
CHANGED_MAX: Final = 2048
"""Keys whose last change is remembered, for as long as a transaction lasts that had begun before it."""
FINISHED_MAX: Final = 2048
"""Transactions whose end is remembered, for those who ask again because they did not hear the answer."""
LEASE_MIN: Final = 8
LEASE_MAX: Final = 512
"""Pointers that are leased at a time: after a manager's sudden end, so many may be taken for transactions."""
LEASE_MS: Final = 10_000
"""How long a lease is used, so that pointers tell the time; and as long a manager goes on beginning transactions that
was taken over without its knowledge: these see nothing newer, and cannot commit with it."""
