"""What a region host and a subscriber agree upon for a connection that several subscriptions share."""

from __future__ import annotations

from typing import Final

PUSHES_MAX: Final = 1000
"""Pushes of one subscription that a host sends before the first is answered: many small ones may wait for one
partition, and must not keep those of others from being sent."""
PUSH_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of them; the last one may go beyond."""
