"""Loggers for code that must go on: what a handler of the application's raises ends in a note on standard error.

`logging` promises that much only of handlers that use its `handleError`. A filter, a formatter or an `emit` of the
application's own may raise out of the call that logs, which is often the one that has just seen another error.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

_OWN_FRAME = 1
"""Between whoever logs and `logging` is the method below: without it each line would be told to come from here."""


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """As the logger itself, but no Exception comes out of it."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})

    def process(self, msg: object, kwargs: MutableMapping[str, Any]) -> tuple[object, MutableMapping[str, Any]]:
        """Leave everything as it is."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:  # noqa: ANN401 - as logging has it
        """See logging.Logger.log; the other methods come here."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + _OWN_FRAME
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever the application's handlers raise
            _tell(self.name, msg)


def logger(name: str) -> SafeLogger:
    """The logger of a module."""
    return SafeLogger(logging.getLogger(name))


def _tell(name: str, message: object) -> None:
    if logging.raiseExceptions:  # as `logging` itself does
        with contextlib.suppress(Exception):
            sys.stderr.write(f"--- Logging error --- of {name}, with {message!r}\n{traceback.format_exc()}")
