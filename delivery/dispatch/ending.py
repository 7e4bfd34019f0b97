"""How the run of a sender ends; what follows is its worker's business."""

from __future__ import annotations

import enum


class Ending(enum.Enum):
    """Why a run ended."""

    BROKEN = "the connection broke"
    FAILED = "a message was not handled"
    FRUITLESS = "a push came to nothing, though the connection stands"
    PARKED = "messages are parked that the run as it is cannot bring again"
    RECALLED = "the partition goes to another member"
    REFUSED = "the listener does not know the subscription or has seen a newer owner"
