"""What Spark raises, as one error of ours: of its pages of stack traces the line that says what was wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger

from delivery.errors import HootError, InvalidRequest
from delivery.spark.jobs.running import JobFailed

_OURS: Final = re.compile(r"^(?:\w+(?:\.\w+)*: )*(?:delivery|subscriber)\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
"""The last line of a Python traceback of a task or of the planning."""
_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
"""Of any Python, with what it raised in the end."""
_LOGS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where PySpark logs what it raises, as JSON with the stack traces of both languages, by handlers of their own."""
_CONDITIONS: Final = {
    "INVALID_UTF8_STRING": "a body, key or header is no text in UTF-8; export them as base64",
    "PATH_ALREADY_EXISTS": "the folder is there already: name another one, or remove it",
}


@contextmanager
def told_plainly() -> Iterator[None]:
    """Raises InvalidRequest for what the user can set right, JobFailed for other errors of Spark's."""
    logs = [PySparkLogger.getLogger(name) for name in _LOGS]
    for log in logs:
        log.disabled = True
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise plainly(error) from error
    finally:
        for log in logs:
            log.disabled = False


def plainly(error: BaseException) -> HootError:
    """What to tell of an error of Spark's."""
    text = str(error)
    for condition, said in _CONDITIONS.items():
        if condition in text:
            return InvalidRequest(said)
    ours = _OURS.findall(text)
    if ours:
        kind, said = ours[-1]
        return InvalidRequest(said) if kind == "InvalidRequest" else JobFailed(f"{kind}: {said}")
    lines = _TRACEBACK.findall(text)[-1:] or [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    return InvalidRequest(first) if isinstance(error, AnalysisException) else JobFailed(first[:500])
