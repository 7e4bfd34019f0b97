"""The guard of one embedded ZooKeeper: starts it, and ends it when the host says so or is gone.

A program of its own, run by its path with nothing but the standard library: about 10 MiB beside ZooKeeper's 60.

    guard.py HOST_PID GUARD_LOCK PID_FILE LOG_FILE COMMAND...

Standard input is a pipe whose other end the host alone has. A byte or the end of file on it ends ZooKeeper; so does a
change of the parent process, for the case that a forked child of the host keeps the pipe open. SIGINT, SIGTERM and
SIGHUP are ignored here and, by inheritance, by the Java: a service manager that signals every process of a service
must not take ZooKeeper away before the host has written its last checkpoints into it. ZooKeeper therefore ends by
SIGKILL, and loses nothing by it: it has no shutdown hook, every acknowledged change is on disk, and SIGTERM would stop
it at just as arbitrary a point.

GUARD_LOCK is an open file that this process inherits and ZooKeeper must not (see folder.py). If the guard itself is
killed, Linux ends ZooKeeper with it; elsewhere the next start in that folder does.
"""

from __future__ import annotations

import os
import select
import signal
import sys

CHECK_SECONDS = 1.0
LOG_BYTES_MAX = 8 * 1024 * 1024
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the command until it ends or must end; its exit status, or 128 + the signal that ended it."""
    host, guard_lock, pid_file, log_file, *command = arguments
    os.set_inheritable(int(guard_lock), False)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    child_ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake)
    child = spawn(command)
    write_pid(pid_file, child)
    status = watch(int(host), child, child_ended, log_file)
    os.unlink(pid_file)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def spawn(command: list[str]) -> int:
    """Start the command with no input and its output in this process's standard error, the log."""
    guard = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        end_with_parent()
        if os.getppid() != guard:  # it died before the line above took effect
            os._exit(1)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies. Only Linux can.

    The signal comes when the *thread* that forked ends; the guard has one only, unlike a host.
    """
    if sys.platform == "linux":
        try:
            from ctypes import CDLL  # after the fork, so that the guard does not carry it

            CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        except (ImportError, OSError, AttributeError):
            return


def watch(host: int, child: int, child_ended: int, log_file: str) -> int:
    """Wait for the first of: the child ends, the host asks, the host is gone. The child's wait status."""
    while True:
        ready, _, _ = select.select([0, child_ended], [], [], CHECK_SECONDS)
        if 0 in ready or os.getppid() != host:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if child_ended in ready:
            os.read(child_ended, 64)
        bound_log(log_file)


def write_pid(pid_file: str, child: int) -> None:
    """Tell host and successors whom to look for, in one step."""
    temporary = f"{pid_file}.{child}"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(f"{child}\n")
    os.replace(temporary, pid_file)


def bound_log(log_file: str) -> None:
    """Move a log that has grown too long out of the way. ZooKeeper appends, so its next line starts the file anew."""
    if os.fstat(2).st_size <= LOG_BYTES_MAX:
        return
    with open(log_file, "rb") as grown, open(f"{log_file}.1", "wb") as previous:
        while piece := grown.read(1 << 20):
            previous.write(piece)
    os.ftruncate(2, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
