"""The standard streams of a command: closed ones are opened on nothing, and what cannot be written is let go.

Whoever starts a command may have closed some of them (`hoot … >&-`, some service managers). The next file or socket
that is opened would then get the number of standard output, and be written to.
"""

from __future__ import annotations

import os
import sys

_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))


def open_streams() -> None:
    """Have all three, whatever was closed."""
    for number, (name, flags) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if flags else "r", encoding="utf-8", closefd=False))


def flush_output() -> None:
    """Hand standard output over. Raises OSError that says what it is about."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def let_output_go() -> None:
    """What is not written of standard output by now goes nowhere, where Python's last flush would fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        silence_output()


def silence_output() -> None:
    """Let everything that is written to standard output from now on go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except OSError:  # standard output is no file, as under a test runner
        return
    finally:
        os.close(nowhere)
