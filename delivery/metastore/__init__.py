"""What Hoot keeps about itself, with ZooKeeper's help.

`catalog` is what everybody uses: a thin face on the `managers`, which keep what lasts in the tables of a MetaStore
(`tables`), and on the znodes that live with a session (`records`). `zookeeper` is the connection, the only file that
knows kazoo, and `reading` its request for many znodes; `inspecting` shows operators what is there.
"""
