"""Reading the tables of HBase past the region hosts: what a host would send, in executors that ask the gateways.

A short cut, not another truth: the region hosts say up to where may be read, and whatever is not in a table any more
(it is archived, say), or cannot be read there, is asked of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from delivery.batch import select_each, without_asides
from delivery.errors import ConfigError, HootError, InvalidRequest
from delivery.filters import Filter, filter_of
from delivery.messaging.groups import has_markers
from delivery.metastore.records import QueueRecord
from delivery.spark.options import ReadOptions
from delivery.spark.ranges import Span
from delivery.storage.base import Chunk, PartitionKey

if TYPE_CHECKING:
    from delivery.hbase import Tables

CONNECTIONS: Final = 2
"""Of a task, which asks for one thing at a time."""
_log = logging.getLogger(__name__)

Piece = tuple[bytes, int]
"""Batches that are wanted, and the id up to which they were looked for."""


def open_tables(options: ReadOptions) -> Tables:
    """The tables behind the gateways that the options name. Raises ConfigError without HBase's client."""
    try:
        from delivery.hbase import Tables, parse_gateways
    except ModuleNotFoundError as error:
        raise ConfigError(f"reading HBase needs {error.name}; install it with: pip install 'hoot[hbase]'") from error
    return Tables(parse_gateways(options.hbase), connections_max=CONNECTIONS)


def check_tables(options: ReadOptions, queues: Iterable[QueueRecord]) -> None:
    """Raises InvalidRequest for a queue that has no table there, StorageUnavailable when no gateway answers."""
    from delivery.storage.hbase import keys

    with closing(open_tables(options)) as tables:
        names = set(tables.names())
    for queue in queues:
        if (table := keys.table_name(options.hbase_prefix, queue.name, queue.generation)) not in names:
            raise InvalidRequest(
                f"HBase at {options.hbase} has no table {table}, so queue {queue.name!r} cannot be read there: is it"
                " stored in another HBase, under another hbasePrefix, or empty?"
            )


def pieces(tables: Tables, options: ReadOptions, generation: str, span: Span, bytes_max: int) -> Iterator[Piece]:
    """The span from its begin on, as far as the table has it without a hole, and no marker stands for others of it."""
    from delivery.storage.hbase import keys
    from delivery.storage.hbase.place import Place
    from delivery.storage.hbase.viewing import View

    wanted, after = filter_of(options.topics, options.filter), span.after
    key = PartitionKey(span.queue, generation, span.partition)
    place = Place(tables, keys.table_name(options.hbase_prefix, span.queue, generation), key)
    try:
        view = View(place, span.until)
        while after < span.until and (chunk := view.read(after, bytes_max)) is not None:
            if has_markers(chunk.data, chunk.headers):
                return
            yield _wanted(chunk, wanted), chunk.last_id
            after = chunk.last_id
    except HootError as error:
        _log.warning("%s/%d is read through its region host from here on: %s", span.queue, span.partition, error)


def _wanted(chunk: Chunk, wanted: Filter | None) -> bytes:
    if wanted is None:
        return without_asides(chunk.data, chunk.headers)[0]
    return select_each(chunk.data, chunk.headers, wanted)
