"""The connection to ZooKeeper: the one file that knows kazoo.

What kazoo leaves open is closed here: every call has a deadline, no write waits in a queue while the connection is
down, a request that is too large is refused instead of breaking the connection, watches outlive it, and no exception
of kazoo's gets out.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import Callback, KazooState

from delivery import logs
from delivery.errors import BadVersion, Closed, ConfigError, HootError, InvalidRequest, MetadataUnavailable
from delivery.metastore.address import split_hosts
from delivery.metastore.ops import (
    Create,
    Delete,
    InDoubt,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Refused,
    Set,
    check_path,
    check_request,
    naming,
)
from delivery.metastore.probe import select_reply, why_unanswered
from delivery.metastore.reading import READ_AT_ONCE, Answer, ReadMany
from delivery.metastore.state import ConnectionState, State, StateCallback
from delivery.metastore.watches import Event, Hint, Kind, Watches
from delivery.metastore.znodes import Aspect, ZNodes

# kazoo's own back-off left a client away for up to 17 s after the server was back.
_RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 0.5}
# Of the session timeout. A ZooKeeper that is just opening its database never answers a handshake, for which kazoo waits
# until the session of a single server's client is over.
_SILENT_PART: Final = 1 / 3

_STATES: Final[dict[str, State]] = {
    KazooState.CONNECTED: "steady", KazooState.SUSPENDED: "suspended", KazooState.LOST: "lost",
}  # fmt: skip
_REFUSALS: Final[dict[type[Exception], tuple[type[HootError], str]]] = {
    kazoo_errors.NoNodeError: (NoNode, "{} is not there"),
    kazoo_errors.NodeExistsError: (NodeExists, "{} is there already"),
    kazoo_errors.BadVersionError: (BadVersion, "{} was changed by somebody else"),
    kazoo_errors.NotEmptyError: (NotEmpty, "{} has children"),
    kazoo_errors.BadArgumentsError: (InvalidRequest, "{!r} is no path that ZooKeeper takes"),
    kazoo_errors.NoAuthError: (ConfigError, "ZooKeeper does not let this program touch {}: see its ACL"),
    kazoo_errors.UnimplementedError: (ConfigError, "this ZooKeeper is older than 3.6 and does not {}"),
    kazoo_errors.NoChildrenForEphemeralsError: (InvalidRequest, "{} would be below an ephemeral znode"),
}
_BYSTANDERS: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)

log = logs.logger(__name__)
# kazoo warns at each attempt, several a second while ZooKeeper is away; the changes of state are logged here instead.
kazoo_log = logs.logger(f"{__name__}.kazoo")
kazoo_log.setLevel(logging.ERROR)


class ZooKeeperClient(ZNodes):
    """One session with ZooKeeper. Blocking and thread-safe; whoever calls `start` calls `stop`.

    `hosts` is `host:port,host:port/folder`; all paths are inside the folder, which `start` creates. A call takes at
    most `deadline` seconds: while the connection is away it waits for it, then raises MetadataUnavailable. A read whose
    connection breaks is repeated in that time. A write is not: MetadataUnavailable then says that it may or may not
    have been done. One that waited in vain is not sent later. After `stop`, and before `start`, calls raise Closed.
    When a session is lost, a new one follows by itself; what is ephemeral has to be created again.
    """

    def __init__(self, hosts: str, *, session_timeout: float = 6.0, deadline: float = 5.0) -> None:
        """Does not connect yet. Raises ConfigError when `hosts` cannot be read."""
        self._servers, self._folder = split_hosts(hosts)
        self.hosts = self._servers + self._folder
        self.session_timeout = session_timeout
        self.deadline = deadline
        self._client: Any = None
        self._connection = ConnectionState()
        self._watches = Watches(self._set_watch)

    @property
    def state(self) -> State:
        """The state of the connection now; `lost` before `start` and after `stop`."""
        return self._connection.state

    @property
    def session_id(self) -> int:
        """The session, also while suspended; 0 when there is none."""
        return self._connection.session

    def start(self) -> None:
        """Connect and open a session. Raises MetadataUnavailable when no ZooKeeper answers by the deadline.

        It is raised after a second already when every server refuses connections.
        """
        assert self._client is None, "started already"
        # kazoo can keep to a folder by itself, but not create one of two levels: the paths are put together here.
        handler = SequentialThreadingHandler()
        handler.select = partial(select_reply, self.session_timeout * _SILENT_PART, handler.select)
        handler.async_result = partial(_Result, handler)
        self._client = client = KazooClient(
            self._servers, timeout=self.session_timeout, handler=handler, connection_retry=_RECONNECT, logger=kazoo_log
        )
        self._connection.open()
        client.add_listener(partial(self._on_kazoo_state, client))
        try:
            if why := why_unanswered(client.start_async(), client.hosts, self.deadline):
                raise MetadataUnavailable(
                    f"no ZooKeeper answers at {self.hosts} {why}: start one with `hoot zookeeper` or `hoot serve"
                    " --embedded`, or name yours with --zookeeper"
                )
            if self._folder:
                ensure = f"create the folder {self._folder}"
                self._call(ensure, lambda kazoo: kazoo.ensure_path_async(self._folder), repeat=True)
        except BaseException:
            self._end_within(0.0)
            raise

    def stop(self) -> None:
        """End the session, and with it what is ephemeral. Does nothing when not started; not for use in a callback.

        Waits up to the deadline; when ZooKeeper does not answer, the session ends there by its timeout.
        """
        self._end_within(self.deadline)

    def _end_within(self, seconds: float) -> None:
        client, self._client = self._client, None
        self._connection.close()
        if client is not None:
            # kazoo joins its threads without a limit, and they may be waiting for a server that hangs.
            ending = threading.Thread(target=_end, args=(client,), name="zookeeper-stop", daemon=True)
            ending.start()
            ending.join(seconds)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def on_state(self, callback: StateCallback) -> None:
        """Call `callback` with each new state, on kazoo's connection thread: it must hand over and return at once."""
        self._connection.call(callback)

    # -- watching

    def watch_children(self, path: str, hint: Hint) -> None:
        """Call `hint` when `path` gets or loses a child, appears or goes, and after each reconnect; once at first, too.

        The watch stays until `unwatch` and may be set on what does not exist, and while the connection is away. Hints
        come on kazoo's threads: they must hand over and return at once. What is read after a hint includes the change.
        """
        self._watches.add("children", check_path(path), hint)

    def watch_value(self, path: str, hint: Hint) -> None:
        """As `watch_children`, for the value of `path`, its creation and its end."""
        self._watches.add("value", check_path(path), hint)

    def unwatch(self, path: str, hint: Hint | None = None) -> None:
        """No more hints about `path`, or no more of this one; one that is under way may still come."""
        self._watches.remove(path, hint)

    # -- the seam

    def _call(self, what: str, submit: Callable[[Any], Any], *, repeat: bool = False) -> Any:
        end = time.monotonic() + self.deadline
        while True:
            client = self._steady_client(what, end)
            try:
                return submit(client).get(timeout=max(0.0, end - time.monotonic()))
            except KazooTimeoutError:
                raise self._in_doubt(f"did not answer within {self.deadline:g} s", what, repeat) from None
            except kazoo_errors.KazooException as error:
                if type(error) in _REFUSALS:
                    raise _refusal(error, what) from None
                if not repeat:
                    raise self._in_doubt(f"broke the connection ({type(error).__name__})", what, repeat) from error

    def _in_doubt(self, why: str, what: str, harmless: bool) -> MetadataUnavailable:
        if harmless:
            return MetadataUnavailable(f"ZooKeeper at {self.hosts} {why}: {what}")
        return InDoubt(f"ZooKeeper at {self.hosts} {why}; this may or may not have been done: {what}")

    def _steady_client(self, what: str, end: float) -> Any:
        steady, client = self._connection.wait_steady(end), self._client
        if client is None:
            raise Closed(f"the ZooKeeper client is not running, so this was not done: {what}")
        if not steady:
            raise MetadataUnavailable(f"no connection to ZooKeeper at {self.hosts}, so this was not done: {what}")
        return client

    def _read(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        for path in paths:
            check_path(path)
        parts = (paths[at : at + READ_AT_ONCE] for at in range(0, len(paths), READ_AT_ONCE))
        return [answer for part in parts for answer in self._read_part(aspect, part)]

    def _read_part(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        def submit(kazoo: Any) -> Any:
            answer = kazoo.handler.async_result()
            kazoo._call(ReadMany(aspect, [self._folder + path for path in paths]), answer)  # noqa: SLF001 - see there
            return answer

        answers: list[Answer] = self._call(naming("read", paths), submit, repeat=True)
        return [_found(path, answer) for path, answer in zip(paths, answers, strict=True)]

    def _transact(self, ops: Sequence[Op]) -> list[int] | Refused:
        check_request(ops)
        what = naming(type(ops[0]).__name__.lower(), [op.path for op in ops])
        results: list[Any] = self._call(what, lambda kazoo: _transaction(kazoo, self._folder, ops).commit_async())
        failed = [index for index, result in enumerate(results) if isinstance(result, Exception)]
        if not failed:
            return [getattr(result, "version", 0) for result in results]
        index = next((index for index in failed if not isinstance(results[index], _BYSTANDERS)), failed[0])
        return Refused(index, _refusal(results[index], ops[index].path))

    def _set_watch(self, kind: Kind, path: str, fired: Callable[[Event], None], done: Callable[[bool], None]) -> None:
        client, path = self._client, self._folder + path
        if client is None or self.state != "steady":
            done(False)
            return

        def ask() -> None:
            listing = kind == "children"
            method = client.get_children_async if listing else client.exists_async
            method(path, watch=fired).rawlink(answered)

        def answered(result: Any) -> None:
            if isinstance(result.exception, kazoo_errors.NoNodeError):
                # Children of what is not there cannot be watched: wait for its creation.
                client.exists_async(path, watch=fired).rawlink(looked)
            else:
                done(result.exception is None or type(result.exception) in _REFUSALS)

        def looked(result: Any) -> None:
            if result.exception is None and result.value is not None:
                ask()  # it has just been created
            else:
                answered(result)

        ask()

    def _on_kazoo_state(self, client: Any, kazoo_state: str) -> None:
        if self._client is not client:
            return
        state = _STATES[kazoo_state]
        log.log(logging.INFO if state == "steady" else logging.WARNING, "ZooKeeper at %s: %s", self.hosts, state)
        session = self.session_id if state == "suspended" else 0
        self._connection.change(state, client.client_id[0] if state == "steady" else session)
        if state == "steady":
            # Not on this thread: it is the one that empties the pipe which each request goes through.
            client.handler.dispatch_callback(Callback("watch", self._watches.set_all, ()))


class _Result(AsyncResult):  # type: ignore[misc] # kazoo has no types
    """An answer that is awaited, and hears Ctrl-C.

    Whatever is raised while kazoo wakes its connection thread, an interrupt too, it takes for a closed connection.
    """

    def __init__(self, handler: SequentialThreadingHandler) -> None:
        super().__init__(handler)
        self._raised_before = sys.exc_info()[1]
        """By whoever asks while he cleans up."""

    def set_exception(self, exception: Exception) -> None:
        taken = sys.exc_info()[1]
        if taken is not self._raised_before and not isinstance(taken, Exception | None):
            raise taken
        super().set_exception(exception)


def _found(path: str, answer: Answer) -> Answer | None:
    if not isinstance(answer, int):
        return answer
    error = kazoo_errors.EXCEPTIONS[answer]()
    if isinstance(error, kazoo_errors.NoNodeError):
        return None
    raise _refusal(error, path)


def _transaction(kazoo: Any, folder: str, ops: Sequence[Op]) -> Any:
    transaction = kazoo.transaction()
    for op in ops:
        path = folder + op.path
        if isinstance(op, Create):
            transaction.create(path, op.value, ephemeral=op.ephemeral)
        elif isinstance(op, Set):
            transaction.set_data(path, op.value, op.version)
        elif isinstance(op, Delete):
            transaction.delete(path, op.version)
        else:
            transaction.check(path, op.version)
    return transaction


def _refusal(error: Exception, path: str) -> HootError:
    kind, text = _REFUSALS.get(type(error), (MetadataUnavailable, f"ZooKeeper failed at {{}}: {type(error).__name__}"))
    return kind(text.format(path))


def _end(client: Any) -> None:
    try:
        client.stop()
        client.close()
    except Exception:
        log.exception("the ZooKeeper client did not end cleanly")
