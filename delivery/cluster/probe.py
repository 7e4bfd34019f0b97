"""Whether a registered host is gone although its ZooKeeper session has not ended yet.

After a kill -9 ZooKeeper takes a session timeout to notice. A refused connection tells at once: the machine answers and
nobody listens. No other outcome says anything, and a wrong guess does no harm: the store fences whoever is taken over.
"""

from __future__ import annotations

import socket
from typing import Final

from delivery.metastore.records import HostRecord

PROBE_SECONDS: Final = 0.5


def is_gone(record: HostRecord) -> bool:
    """Whether connections to the host's port are refused. Blocks for half a second at most."""
    try:
        socket.create_connection((record.address, record.port), PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
