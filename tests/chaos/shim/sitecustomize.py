"""Faults inside a child process that only its own interpreter can have; Python imports this file by its name at start.

For tests alone: it is on the PYTHONPATH of the chaos tests' children and nowhere else, and the programs under test know
nothing of it.

HOOT_CHAOS_CLOCK=FILE  The wall clock (`time.time_ns`, `time.time`) is off by as many nanoseconds as FILE holds, a
                       little-endian signed 64-bit number that is read at each call: a step shows at once. A second
                       such number, when it is not 0, is where the clock stands. The monotonic clock stays right, as it
                       does when a machine's clock is set.
HOOT_CHAOS_DETOUR=ADDRESS:PORT,PORT,...
                       Connections to these ports of 127.0.0.1 go to ADDRESS instead, where the proxy listens: region
                       hosts register the address that they listen on.
HOOT_CHAOS_TRAP=FILE   When FILE is there and says `ACTION MOMENT`, the next write of a message log removes it and then
                       does the action: `exit` is a kill -9, `stop` a SIGSTOP, both of this process. The moments are
                       `before-write`, `after-write` (not yet on the disk), `after-sync` (not yet confirmed), and
                       `locked`: the next time that it holds a partition's lock.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

_CLOCK = struct.Struct("<qq")


def _step_clock(path: str) -> None:
    with open(path, "rb") as file:
        said = mmap.mmap(file.fileno(), _CLOCK.size, prot=mmap.PROT_READ)
    real = time.time_ns

    def time_ns() -> int:
        off, stands = _CLOCK.unpack(said[: _CLOCK.size])
        return int(stands or real() + off)

    def time_s() -> float:
        return time_ns() / 1e9

    time.time_ns, time.time = time_ns, time_s


def _take_detour(said: str) -> None:
    address, _, listed = said.partition(":")
    ports = {int(port) for port in listed.split(",")}

    def led_astray(connect: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: socket.socket, to: Any) -> Any:
            if isinstance(to, tuple) and to[0] == "127.0.0.1" and to[1] in ports:
                to = (address, to[1])
            return connect(self, to)

        return method

    socket.socket.connect = led_astray(socket.socket.connect)  # type: ignore[method-assign]
    socket.socket.connect_ex = led_astray(socket.socket.connect_ex)  # type: ignore[method-assign]


def _set_trap(path: str) -> None:
    def sprung(moment: str) -> None:
        try:
            with open(path) as file:
                action, _, wanted = file.read().strip().partition(" ")
        except FileNotFoundError:
            return
        if wanted == moment:
            os.unlink(path)
            # To this thread, which stops at once; of its process some other one may be told, and this one goes on.
            signal.pthread_kill(threading.get_ident(), signal.SIGKILL if action == "exit" else signal.SIGSTOP)

    def pwritev(fd: int, parts: Any, offset: int, flags: int = 0, write: Callable[..., int] = os.pwritev) -> int:
        sprung("before-write")
        written = write(fd, parts, offset)  # what writes and flushes at once can be caught between the two as well
        sprung("after-write")
        if flags & os.RWF_DSYNC:
            os.fdatasync(fd)
        return written

    def fdatasync(fd: int, sync: Callable[[int], None] = os.fdatasync) -> None:
        sync(fd)
        sprung("after-sync")

    def flock(fd: int, operation: int, lock: Callable[[int, int], None] = fcntl.flock) -> None:
        lock(fd, operation)
        sprung("locked")

    os.pwritev, os.fdatasync, fcntl.flock = pwritev, fdatasync, flock  # type: ignore[assignment]


if "HOOT_CHAOS_CLOCK" in os.environ:
    _step_clock(os.environ["HOOT_CHAOS_CLOCK"])
if "HOOT_CHAOS_DETOUR" in os.environ:
    _take_detour(os.environ["HOOT_CHAOS_DETOUR"])
if "HOOT_CHAOS_TRAP" in os.environ:
    _set_trap(os.environ["HOOT_CHAOS_TRAP"])
