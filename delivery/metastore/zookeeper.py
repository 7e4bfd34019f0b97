"""The connection to ZooKeeper: the one file that knows kazoo.

What kazoo leaves open is closed here: every call has a deadline, no write waits in a queue while the connection is down,
a request that is too large is refused instead of breaking the connection, watches outlive it, and no exception of
kazoo's gets out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, TransactionRequest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback, KazooState

from delivery.errors import BadVersion, Closed, ConfigError, HootError, InvalidRequest, MetadataUnavailable
from delivery.metastore.hosts import check_hosts
from delivery.metastore.ops import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Refused,
    Set,
    check_size,
)
from delivery.metastore.watches import Event, Hint, Kind, Watches

State = Literal["steady", "suspended", "lost"]
StateCallback = Callable[[State], None]

# kazoo's own back-off left a client away for up to 17 s after the server was back.
_RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 0.5}
# kazoo wakes its connection thread through a pipe that holds 278 requests; a full pipe blocks, past every deadline.
_IN_FLIGHT_MAX: Final = 64
_DELETES_AT_ONCE: Final = 500
_DELETE_ROUNDS: Final = 20

_STATES: Final[dict[str, State]] = {
    KazooState.CONNECTED: "steady",
    KazooState.SUSPENDED: "suspended",
    KazooState.LOST: "lost",
}
_REFUSALS: Final[dict[type[Exception], tuple[type[HootError], str]]] = {
    kazoo_errors.NoNodeError: (NoNode, "{} is not there"),
    kazoo_errors.NodeExistsError: (NodeExists, "{} is there already"),
    kazoo_errors.BadVersionError: (BadVersion, "{} was changed by somebody else"),
    kazoo_errors.NotEmptyError: (NotEmpty, "{} has children"),
    kazoo_errors.BadArgumentsError: (InvalidRequest, "{!r} is no path that ZooKeeper takes"),
    kazoo_errors.NoAuthError: (ConfigError, "ZooKeeper does not let this program change or read {}: see its ACL"),
    kazoo_errors.NoChildrenForEphemeralsError: (InvalidRequest, "the parent of {} is ephemeral"),
}
_UNDECIDED = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)  # of a transaction, beside the culprit

_log = logging.getLogger(__name__)
# kazoo warns at each of its attempts, several a second while ZooKeeper is away; the changes of state are logged here.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)


class ZooKeeperClient:
    """One session with ZooKeeper. Blocking and thread-safe; whoever calls `start` calls `stop`.

    `hosts` is `host:port,host:port/folder`: all paths are then inside the folder, which `start` creates. A call takes at
    most `deadline` seconds: while the connection is away it waits for it, then raises MetadataUnavailable. A read is
    tried again in that time. A write is not: when the connection breaks under it, MetadataUnavailable says that it may or
    may not have been done. A write that is refused before it was sent is never done later. Cancelling is not possible.

    The state is `steady`, `suspended` (no connection; the session and its ephemeral znodes may live on or not) or `lost`
    (the session is over, and with it what was ephemeral; a new one follows). ZooKeeper tells that a session is over only
    when the connection is back: whoever acts on behalf of it keeps a clock while the state is `suspended`.
    """

    def __init__(self, hosts: str, *, session_timeout: float = 6.0, deadline: float = 5.0) -> None:
        """Does not connect yet. Raises ConfigError when `hosts` cannot be read."""
        self.hosts = check_hosts(hosts)
        self.session_timeout = session_timeout
        self.deadline = deadline
        self._client: Any = None
        self._state: State = "lost"
        self._session = 0
        self._changed = threading.Condition()
        self._bulk = threading.Lock()
        self._callbacks: list[StateCallback] = []
        self._watches = Watches(self._set_watch)

    @property
    def state(self) -> State:
        """The state of the connection now; `lost` before `start` and after `stop`."""
        return self._state

    @property
    def session_id(self) -> int:
        """The session, also while suspended; 0 when there is none."""
        return self._session

    def start(self) -> None:
        """Connect and open a session. Raises MetadataUnavailable when no ZooKeeper answers by the deadline."""
        assert self._client is None, "started already"
        self._client = client = KazooClient(
            self.hosts, timeout=self.session_timeout, connection_retry=_RECONNECT, logger=_kazoo_log
        )
        client.add_listener(self._on_kazoo_state)
        try:
            if not client.start_async().wait(self.deadline):
                raise MetadataUnavailable(
                    f"no ZooKeeper answers at {self.hosts} within {self.deadline:g} s: start one with `hoot zookeeper`"
                    " or `hoot serve --embedded`, or name yours with --zookeeper"
                )
            if client.chroot:
                self._call(f"create the folder {client.chroot}", lambda: client.ensure_path_async("/"))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the session, and with it its ephemeral znodes. Does nothing when not started; not for use in a callback.

        Waits up to the deadline. When ZooKeeper does not answer, the session ends there by its timeout.
        """
        with self._changed:
            client, self._client = self._client, None
            self._state, self._session = "lost", 0
            self._changed.notify_all()
        if client is not None:
            # kazoo joins its threads without a limit, and those may wait for a server that hangs.
            ending = threading.Thread(target=_end, args=(client,), name="zookeeper-stop", daemon=True)
            ending.start()
            ending.join(self.deadline)

    def on_state(self, callback: StateCallback) -> None:
        """Call `callback` with each new state, on kazoo's connection thread: it must hand over and return at once."""
        self._callbacks.append(callback)

    # -- reading

    def get(self, path: str) -> tuple[bytes, int] | None:
        """The value and version of a znode, None when there is none."""
        return self.get_many([path])[0]

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """`get` for each path, not as of one moment. The deadline holds for each 64 of them."""
        found: list[tuple[bytes, int] | None] = []
        for at in range(0, len(paths), _IN_FLIGHT_MAX):
            part = paths[at : at + _IN_FLIGHT_MAX]
            answers = self._bulk_call(f"read {part[0]}", lambda part=part: [self._client.get_async(p) for p in part])
            found += [None if answer is None else (answer[0], answer[1].version) for answer in answers]
        return found

    def children(self, path: str) -> list[str] | None:
        """The names below a znode in order, None when there is no such znode."""
        [names] = self._bulk_call(f"list {path}", lambda: [self._client.get_children_async(path)])
        return None if names is None else sorted(names)

    def exists(self, path: str) -> bool:
        """Whether there is such a znode."""
        return self._call(f"look for {path}", lambda: self._client.exists_async(path), repeat=True) is not None
