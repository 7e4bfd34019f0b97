"""The metadata managers (seed 000) over any MetaStore: who owns a partition, what is stored of it, who reads it.

What Hedwig calls a topic is a partition of a queue here. `ownership`, `persistence` and `subscriptions` are the seed's
three; `states` is the hot half of the third; `queues` is Hoot's own beside them; `layout` records which MetaStore a
cluster was formatted for.
"""
