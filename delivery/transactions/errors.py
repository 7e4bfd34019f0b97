"""What calls about transactions are refused with."""

from __future__ import annotations

from delivery.errors import HootError, travels


@travels
class UnknownTransaction(HootError):
    """No transaction of that write pointer is in progress, or it ended so long ago that nothing is known of it."""

    code = "unknown_transaction"


@travels
class TransactionFinished(HootError):
    """The transaction was committed, or aborted, before: what it is cannot change any more."""

    code = "transaction_finished"


@travels
class TransactionInvalid(HootError):
    """The transaction's time was over, or it was invalidated: it cannot commit, and nobody sees what it published."""

    code = "transaction_invalid"


@travels
class TransactionConflict(HootError):
    """Another transaction changed the same and committed first; this one can only be undone and aborted."""

    code = "transaction_conflict"


@travels
class TransactionExpired(HootError):
    """The transaction is older than any may be, so nothing is published in it; nothing was stored."""

    code = "transaction_expired"


class NoSuchWriter(UnknownTransaction):
    """The same where something would be written in it; nothing was stored."""


def refusal(pointer: int, standing: str) -> HootError:
    """What a transaction that is not in progress is refused with."""
    if standing == "invalid":
        return TransactionInvalid(f"the time of transaction {pointer} was over, or it was invalidated")
    return TransactionFinished(f"transaction {pointer} was {standing} before")
