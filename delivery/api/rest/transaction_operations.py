"""Every path of transactions, with what it takes and answers; see `operations`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from delivery.api.rest.operations import Body, Operation
from delivery.transactions.asks import Standing

ALL: Final = "/v1/transactions"
ONE: Final = f"{ALL}/{{pointer}}"


class Begin(msgspec.Struct):
    """What a transaction is begun with."""

    timeout: Annotated[float, msgspec.Meta(ge=0.001, le=1e6)] | None = None
    """In seconds."""


class Begun(msgspec.Struct, rename="camel"):
    """A transaction that has begun."""

    transaction_write_pointer: int
    deadline: int
    """In ms since 1970."""
    transaction: bytes


class Seen(msgspec.Struct, rename="camel"):
    """What one sees who begins none."""

    transaction: bytes
    read_pointer: int
    in_progress: list[int]
    invalid: list[int]


class Stands(msgspec.Struct):
    """How a transaction stands."""

    state: Standing


class Commit(msgspec.Struct):
    """What a commit says was changed."""

    changes: list[bytes] = []


class Prune(msgspec.Struct):
    """Which transactions are to be forgotten."""

    before: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    """In ms since 1970."""


class Pruned(msgspec.Struct):
    """How many were."""

    pruned: int


TRANSACTION_OPERATIONS: Final = (
    Operation(
        name="begin", method="POST", path=ALL, summary="Begin a transaction", errors=(400,),
        body=Body(Begin, required=False), answer=Body(Begun),
    ),
    Operation(
        name="look", method="GET", path=ALL, summary="What one sees who begins none", errors=(), answer=Body(Seen)
    ),
    Operation(
        name="prune", method="POST", path=f"{ALL}/prune",
        summary="Forget invalid transactions, whose messages are seen as committed then", errors=(400,),
        body=Body(Prune), answer=Body(Pruned),
    ),
    Operation(
        name="standing", method="GET", path=ONE, summary="How a transaction stands", errors=(400, 404),
        answer=Body(Stands),
    ),
    Operation(
        name="commit", method="POST", path=f"{ONE}/commit", summary="Make visible what a transaction did",
        errors=(400, 404, 409), body=Body(Commit, required=False),
    ),
    Operation(
        name="abort", method="POST", path=f"{ONE}/abort", summary="End a transaction that has taken everything back",
        errors=(400, 404, 409),
    ),
    Operation(
        name="invalidate", method="POST", path=f"{ONE}/invalidate", summary="End a transaction that has not",
        errors=(400, 404, 409),
    ),
)  # fmt: skip
"""In the order in which they are told."""
