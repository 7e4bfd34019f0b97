"""The MetaStore for trio programs: the same names, awaited (seed 001 has every call twice, too).

It is the blocking MetaStore underneath, called in a thread once per call; a batch of a cursor or of `put_many` is one
call. A call that is cancelled ends in its thread before the cancellation is delivered, within ZooKeeper's deadline.
Watchers are called on threads of the store's: hand over with `trio.from_thread.run_sync(..., trio_token=token)`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import trio

from delivery.metastore.tables.base import MetaStore, MetastoreCursor, MetastoreScannableTable, MetastoreTable
from delivery.metastore.tables.cursors import clean_table

S_co = TypeVar("S_co", covariant=True)
T_co = TypeVar("T_co", bound=MetastoreTable, covariant=True)
R = TypeVar("R")
F = TypeVar("F")
P = ParamSpec("P")


class _Face(Generic[S_co]):
    """One blocking object; its calls hop to a thread."""

    def __init__(self, blocking: S_co) -> None:
        self.blocking = blocking


def _hop(method: Callable[Concatenate[S_co, P], R]) -> Callable[Concatenate[_Face[S_co], P], Coroutine[Any, Any, R]]:
    """`method` of what is underneath, as that implements it, awaited."""

    async def call(face: _Face[S_co], /, *args: P.args, **options: P.kwargs) -> R:
        implemented: Callable[P, R] = getattr(face.blocking, method.__name__)
        return await trio.to_thread.run_sync(partial(implemented, *args, **options))

    return call


def _hop_to(
    face_of: Callable[[R], F], method: Callable[Concatenate[S_co, P], R]
) -> Callable[Concatenate[_Face[S_co], P], Coroutine[Any, Any, F]]:
    """As `_hop`, for what itself needs a face."""
    hopping = _hop(method)

    async def call(face: _Face[S_co], /, *args: P.args, **options: P.kwargs) -> F:
        return face_of(await hopping(face, *args, **options))

    return call


class AsyncCursor(_Face[MetastoreCursor]):
    """See MetastoreCursor. An async context manager."""

    has_more_entries = _hop(MetastoreCursor.has_more_entries)
    read_entries = _hop(MetastoreCursor.read_entries)
    read_keys = _hop(MetastoreCursor.read_keys)
    close = _hop(MetastoreCursor.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.blocking.close()  # frees memory, asks nobody


class _Table(_Face[T_co]):
    """What the tables of both kinds have."""

    get = _hop(MetastoreTable.get)
    get_many = _hop(MetastoreTable.get_many)
    put = _hop(MetastoreTable.put)
    put_many = _hop(MetastoreTable.put_many)
    remove = _hop(MetastoreTable.remove)
    remove_many = _hop(MetastoreTable.remove_many)

    async def clean(self, entries_per_scan: int) -> None:
        """See clean_table."""
        await trio.to_thread.run_sync(clean_table, self.blocking, entries_per_scan)


class AsyncTable(_Table[MetastoreTable]):
    """See MetastoreTable."""

    open_cursor = _hop_to(AsyncCursor, MetastoreTable.open_cursor)


class AsyncScannableTable(_Table[MetastoreScannableTable]):
    """See MetastoreScannableTable."""

    open_cursor = _hop_to(AsyncCursor, MetastoreScannableTable.open_cursor)


class AsyncMetaStore(_Face[MetaStore]):
    """See MetaStore."""

    create_table = _hop_to(AsyncTable, MetaStore.create_table)
    create_scannable_table = _hop_to(AsyncScannableTable, MetaStore.create_scannable_table)
    drop_table = _hop(MetaStore.drop_table)
    close = _hop(MetaStore.close)
