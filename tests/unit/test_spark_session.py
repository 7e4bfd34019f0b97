"""Which Python executors run: for functions and for data sources Spark asks in two places, which must say the same."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from delivery.spark import session

NAMES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@pytest.mark.parametrize(
    ("named", "local", "expected"),
    [
        (None, True, sys.executable), ("./hoot/bin/python", True, sys.executable),
        (None, False, sys.executable), ("./hoot/bin/python", False, "./hoot/bin/python"),
    ],
)  # fmt: skip
def test_it_is_this_one_unless_another_is_named_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch, named: str | None, local: bool, expected: str
) -> None:
    monkeypatch.setattr(session, "spark_java_home", lambda _: "/java")
    with mock.patch.dict(os.environ):
        for name in NAMES:
            os.environ.pop(name, None)
        if named is not None:
            os.environ["PYSPARK_PYTHON"] = named
        session._set_environment(Path("work"), local=local)
        assert [os.environ[name] for name in NAMES] == [expected, expected]
