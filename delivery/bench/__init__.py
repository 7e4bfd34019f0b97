"""`hoot bench`: how fast Hoot delivers, measured with real processes and refused when anything was lost or reordered.

`cases` has one function per case; `consumer` is the subscriber's process; `report` turns what was measured into the
JSON line; `cli` is the command. Publisher, region host, ZooKeeper and each subscriber are separate processes.
"""
