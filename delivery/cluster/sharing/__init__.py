"""What several hosts do about their partitions, put together by `sharing`.

`placing` sends first touches to the least loaded host, `takeover` waits for what others own, `giving` hands partitions
over, `mending` and `news` are for hand-overs that failed, `upkeep` tells the load, sheds and releases. The decisions
are plain functions: `placement`, `shedding`.
"""
