"""`hoot bench`: how fast Hoot delivers, measured with real processes and refused when anything was lost or reordered.

`cases` has one function per case, `http` those of topics over HTTP, with `asking` as their client, and `fencing` has
its own; `consumer` is the subscriber's process; `checking` holds what it got against what was published; `report` turns
what was measured into a line; `cli` is the command. Publisher, region hosts, ZooKeeper and each subscriber are separate
processes.
"""
