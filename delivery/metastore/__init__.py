"""What Hoot keeps in ZooKeeper: paths and records (`records`), connection (`zookeeper`), typed access (`catalog`)."""
