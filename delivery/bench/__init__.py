"""`hoot bench`: how fast Hoot delivers, measured with real processes and refused when anything was lost or reordered.

`catalogue` declares every case once, with its options (`options`), and `cli` makes the command of that. `cases` has
those that are about one rate or latency, `putting`, `spread`, `groups`, `storm`, `neighbour`, `idle`, `restart` and
`fencing` one each, and `http` those of topics over HTTP, with `asking` as their client; `stage` is what the others
stand on. `consumer` is the subscriber's process with its listeners (`tallies`), `sleepers` one with thousands of them,
and `children` starts them. `checking` holds what was got against what was published; `gauging` reads what the hosts
cost; `report` turns it into a line. Publisher, region hosts, ZooKeeper and subscribers are separate processes.
"""
