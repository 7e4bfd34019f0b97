"""Whether a registered host is gone although its ZooKeeper session has not ended yet.

After a kill -9 ZooKeeper takes a session timeout to notice. A refused connection tells at once: the machine answers and
nobody listens. No other outcome says anything, and a wrong guess does no harm: the store fences whoever is taken over.
"""

from __future__ import annotations

from delivery.metastore.probe import all_refuse
from delivery.metastore.records import HostRecord


def is_gone(record: HostRecord) -> bool:
    """Whether connections to the host's port are refused. Blocks for half a second per address of it at most."""
    try:
        return all_refuse([(record.address, record.port)])
    except ValueError:  # no host can have such a name
        return False
