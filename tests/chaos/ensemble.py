"""Three real ZooKeeper servers in one ensemble, each a process with a guard of its own; made to be killed.

The same jars, command line and guard as the embedded ZooKeeper (delivery/embedded), with a zoo.cfg for a quorum. A node
keeps its ports and its data over restarts. When this process is gone, after a kill -9 too, the guards end the servers,
also stopped ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Literal, Self

import delivery.embedded
from delivery.embedded import find_java
from delivery.embedded.folder import DataFolder
from delivery.embedded.server import (
    LOOPBACK,
    SESSION_MS_MAX,
    SESSION_MS_MIN,
    TICK_MS,
    command,
    environment,
    zookeeper_jars,
)
from tests.chaos.ports import new_port
from tests.integration.embedded import eventually

Role = Literal["leader", "follower", "none"]

NODES = 3
HEAP_MIB = 96
START_SECONDS = 60.0
_GUARD = Path(delivery.embedded.__file__).with_name("guard.py")
_ASK_SECONDS = 0.5
_ANSWER_BYTES_MAX = 65_536

# initLimit and syncLimit in ticks of 0.5 s: a follower that hears nothing of its leader for 3 s looks for another.
_CONFIG = """\
clientPort={client}
clientPortAddress={loopback}
dataDir=./data
tickTime={tick}
initLimit=20
syncLimit=6
minSessionTimeout={session_min}
maxSessionTimeout={session_max}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
forceSync=yes
preAllocSize=1024
snapSizeLimitInKb=65536
standaloneEnabled=false
{servers}
"""


class Node:
    """One server. `launch` does not wait for it: alone it cannot serve."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.client_port, self.quorum_port, self.election_port = (new_port() for _ in range(3))
        self._folder = DataFolder(folder)
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process is there; it may be stopped."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def server_line(self) -> str:
        """How the others find it."""
        return f"server.{self.number}={LOOPBACK}:{self.quorum_port}:{self.election_port}"

    def launch(self, servers: str) -> None:
        """Start the process; does nothing when it runs."""
        if self.alive:
            return
        folder = self._folder
        folder.prepare()
        (folder.data / "myid").write_text(f"{self.number}\n")
        config = _CONFIG.format(
            client=self.client_port, loopback=LOOPBACK, tick=TICK_MS, session_min=SESSION_MS_MIN,
            session_max=SESSION_MS_MAX, servers=servers,
        )  # fmt: skip
        arguments = command(find_java(), zookeeper_jars(), HEAP_MIB, folder.marker)
        locks = folder.lock()
        try:
            folder.write_config(config)
            folder.pid_file.unlink(missing_ok=True)
            with folder.log_file.open("ab") as log:
                self._guard = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(locks.guard),
                     str(folder.pid_file), str(folder.log_file), *arguments],
                    bufsize=0, cwd=folder.path, env=environment(), pass_fds=(locks.guard, locks.server),
                    start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log,
                )  # fmt: skip
        finally:
            locks.close()

    def end(self) -> None:
        """kill -9, and wait; fine when it is gone."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.write(b".")
        guard.stdin.close()
        guard.wait(20)

    def signal(self, number: signal.Signals) -> None:
        """To the server itself, not to its guard."""
        pid = self._folder.running_pid()
        if pid is not None and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def role(self) -> Role:
        """What the server says of itself; `none` when it serves nobody, or does not answer."""
        said = self._asked()
        return "leader" if b"Mode: leader\n" in said else "follower" if b"Mode: follower\n" in said else "none"

    def _asked(self) -> bytes:
        answer = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((LOOPBACK, self.client_port), _ASK_SECONDS) as connection,
        ):
            connection.settimeout(_ASK_SECONDS)
            connection.sendall(b"srvr")
            while len(answer) < _ANSWER_BYTES_MAX and (piece := connection.recv(4096)):
                answer += piece
        return answer


class Ensemble:
    """The nodes together; a context manager that starts them and returns when a majority serves."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [Node(number, folder / f"zookeeper-{number}") for number in range(1, NODES + 1)]
        self._servers = "\n".join(node.server_line for node in self.nodes)

    @property
    def address(self) -> str:
        """Of all nodes, as ZooKeeper clients take it."""
        return ",".join(f"{LOOPBACK}:{node.client_port}" for node in self.nodes)

    def by_role(self, role: Role) -> list[Node]:
        """The nodes that say so now."""
        return [node for node in self.nodes if node.alive and node.role() == role]

    def start(self, node: Node) -> None:
        """Start one node, or start it again."""
        node.launch(self._servers)

    @property
    def serves(self) -> bool:
        """Whether there is a leader that a majority follows."""
        return self._serving() > NODES // 2

    def _serving(self) -> int:
        """How many nodes a leader has, itself among them."""
        roles = [node.role() for node in self.nodes if node.alive]
        return len(roles) - roles.count("none") if "leader" in roles else 0

    def wait(self, *, everybody: bool = False) -> None:
        """Until it serves; with `everybody`, until every node does."""
        least = NODES if everybody else NODES // 2 + 1
        eventually(lambda: self._serving() >= least, f"{least} nodes of the ensemble serve", START_SECONDS)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                self.start(node)
            self.wait(everybody=True)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.end()
