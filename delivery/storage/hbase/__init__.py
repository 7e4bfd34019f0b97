"""The message store in HBase: a table per queue and generation, shared by the hosts of any number of machines.

Who does what: `keys` has the names and row keys, `heads`, `records` and `layouts` the cells; `making` makes a queue's
table and knows it again; `held` is what an owner knows of a partition, with the decisions that need nothing else;
`opening` fences, recovers and seals; `partition` is one partition under one epoch; `group` commits; `store` puts them
together behind the interface; `viewing` reads a partition that somebody else owns.

The rules that everything rests on:

- Put the rows, look at the owner's cell, publish. Readers never pass what is published.
- A row is named by its epoch, so two owners never overwrite one another, and which of them counts is told by the ranges
  in the checkpoint: a row of an old epoch beyond its range is not there, whenever it arrived.
- Every batch names the one before it. A request with many rows may be done in part: the hole shows.
- A cell that fences is moved by checkAndPut alone. Where the answer to one was lost, the cell is read; where that
  cannot tell, nothing more is written under that epoch.
- Everything is one row at a time, which is all that HBase promises.
"""

from __future__ import annotations

from delivery.storage.hbase.store import HBaseStore

__all__ = ["HBaseStore"]
