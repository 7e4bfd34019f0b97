"""The MetaStore (seed 001): tables of small versioned records under string keys, changed by compare-and-set.

`base` is the interface, `memory` the reference implementation, `zookeeper` the one that clusters use. Everything is
blocking; `aio` gives the same names to trio programs. `versions`, `values` and `ranges` are what goes in and out.
"""
