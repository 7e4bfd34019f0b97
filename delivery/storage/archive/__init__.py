"""The archive of a queue: Parquet files with the batches of partitions, on a file system that hosts and Spark share.

`names` says where a file is, `files` writes, checks and reads one (it needs pyarrow and is imported where that is
used), `partition` reads what is archived of a partition, and `store` puts that before any MessageStore.
"""
