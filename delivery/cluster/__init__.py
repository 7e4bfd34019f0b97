"""What this host is and owns: its registration, the queues it knows, and its partitions.

`membership` keeps the host registered in ZooKeeper; `queues` mirrors the queue records; `ownership` claims partitions
on first touch and drops them when they are lost; `partition` is one of them, with the `feed` that wakes its readers;
`retention` trims them.
"""
