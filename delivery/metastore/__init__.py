"""What Hoot keeps in ZooKeeper: the paths and records (`records`), the connection (`zookeeper`), typed access (`catalog`)."""
