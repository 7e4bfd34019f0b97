"""From a partition to a subscriber: the workers of a region host (seed 004, section 3.5.3).

A SubscriptionWorker serves one partition of one subscription. Its MessageScanner reads new batches into a buffer
bounded by messages and bytes; its MessageSender pushes them and keeps a window of unacknowledged pushes; the
contiguous acknowledged prefix is the position that `checkpoints` saves. `supervisor` keeps the right workers running,
from what `watch` reads in ZooKeeper; `plan`, `window` and the buffer's rules are plain decisions without I/O.
"""
