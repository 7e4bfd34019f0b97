"""What this host is and owns: its registration, the queues it knows, its partitions, and what others have of them.

`queues` mirrors the queue records; `ownership` (with `claims`, `claiming`, `refusals`, `cleaning`) claims partitions
and drops them when they are lost; `rounds` is how many ask ZooKeeper together; `partition` is one that is owned, with
the `feed` that wakes its readers, its `use` and its `load`; `retention` trims them, `sealing` tells what earlier epochs
left. None of these knows of other hosts.

`hosts` is who is there: `membership` keeps this host registered, `table` mirrors the others, `peers` calls them.
`sharing` is what several hosts do about their partitions.
"""
