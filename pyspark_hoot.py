"""Lets Spark find the data source `hoot` by itself: Spark registers `DefaultSource` of top-level modules named pyspark_*."""

from delivery.spark.source import HootDataSource as DefaultSource

__all__ = ["DefaultSource"]
