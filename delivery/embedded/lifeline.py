"""The lifeline of a child process: a pipe as its standard input, whose other end only the parent has.

When the parent is gone, after a kill -9 too, the kernel closes that end and the child reads the end of its input. This
works on every POSIX system and whatever thread started the child: Linux's PR_SET_PDEATHSIG ends a child with the
*thread* that started it, and leaves it no time to end in its own way.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STOP_SECONDS = 3.0
_STANDARD_INPUT = 0
_READ_BYTES = 4096


@contextmanager
def lifeline() -> Iterator[int]:
    """The standard input to give to a child that must not outlive this process, nor the context.

    For a child whose `stdin` pipe nobody would close before its end, `subprocess.PIPE` does the same.
    """
    end_of_child, end_of_parent = os.pipe()
    try:
        yield end_of_child
    finally:
        os.close(end_of_parent)
        os.close(end_of_child)


def end_with_parent() -> None:
    """From now on, the end of the standard input is a SIGTERM to this process; what is read before it is of no account.

    It comes to the main thread, as one from outside would. A process that handles it stops in its own way, and is
    killed when that takes more than STOP_SECONDS: who it waits for has most likely ended with the parent.
    """
    threading.Thread(target=_wait_for_the_end, name="lifeline", daemon=True).start()


def _wait_for_the_end() -> None:
    with suppress(OSError):
        while os.read(_STANDARD_INPUT, _READ_BYTES):
            pass
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
