"""What this host is and owns: its registration, the queues it knows, its partitions, and what others have of them.

`membership` keeps the host registered in ZooKeeper; `queues` mirrors the queue records; `ownership` (with `claims`,
`refusals`, `cleaning`) claims partitions and drops them when they are lost; `partition` is one of them, with the `feed`
that wakes its readers and its `use`; `retention` trims them.

`sharing` puts together what several hosts need: `hosts` mirrors their records and `peers` calls them; `placing` sends
first touches to the least loaded, `takeover` waits for what others own, `giving` hands partitions over, `upkeep` tells
the load, sheds and releases. The decisions are plain functions: `placement`, `shedding`, `load`.
"""
