"""What the embedded set-up runs beside Hoot: a real ZooKeeper as a child process, and a Java to run it on."""

from __future__ import annotations

from delivery.embedded.java import Java, find_java, spark_java_home
from delivery.embedded.zookeeper import EmbeddedZooKeeper

__all__ = ["EmbeddedZooKeeper", "Java", "find_java", "spark_java_home"]
