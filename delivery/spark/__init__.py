"""Hoot for Spark: the data source `hoot` (`source`) and how record batches become Arrow (`arrow`)."""
