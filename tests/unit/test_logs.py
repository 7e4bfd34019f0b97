"""What logs must go on although the application's handlers raise."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from delivery import logs


class Recording(logging.Handler):
    """Keeps what it gets, or raises."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        if self.error is not None:
            raise self.error


@pytest.fixture
def handler() -> Iterator[Recording]:
    handler, target = Recording(), logging.getLogger("hoot-logs-test")
    target.addHandler(handler)
    target.setLevel(logging.INFO)
    yield handler
    target.removeHandler(handler)


def test_a_handler_that_raises_is_told_of_and_nothing_comes_out(
    handler: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    handler.error = ValueError("the log is on fire")
    log = logs.logger("hoot-logs-test")
    log.warning("a callback %s", "failed", exc_info=KeyError("x"))
    try:
        raise KeyError("why")
    except KeyError:
        log.exception("twice")
    assert len(handler.records) == 2
    told = capsys.readouterr().err
    assert "the log is on fire" in told
    assert "a callback %s" in told
    handler.error = SystemExit(3)
    with pytest.raises(SystemExit):
        log.warning("who ends the program means it")


def test_a_line_is_as_that_of_the_logger_itself(handler: Recording) -> None:
    logs.logger("hoot-logs-test").info("%d of %d", 1, 2)
    logging.getLogger("hoot-logs-test").info("%d of %d", 1, 2)
    logs.logger("hoot-logs-test").debug("not wanted")
    safe, plain = handler.records
    assert safe.getMessage() == plain.getMessage() == "1 of 2"
    assert (safe.pathname, safe.funcName, safe.name) == (plain.pathname, plain.funcName, plain.name)
    assert safe.lineno == plain.lineno - 1
