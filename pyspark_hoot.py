"""Lets Spark find the source `hoot` by itself: it registers `DefaultSource` of top-level modules named pyspark_*."""

from delivery.spark.source import HootDataSource as DefaultSource

__all__ = ["DefaultSource"]
