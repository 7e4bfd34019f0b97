"""Which Python executors run: for functions and for data sources Spark asks in two places, which must say the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pyspark
import pytest

from delivery.spark import pythons, session

NAMES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@pytest.mark.parametrize(
    ("named", "local", "expected"),
    [
        (None, True, "quick"), ("./hoot/bin/python", True, "quick"),
        (None, False, sys.executable), ("./hoot/bin/python", False, "./hoot/bin/python"),
    ],
)  # fmt: skip
def test_it_is_this_one_unless_another_is_named_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch, named: str | None, local: bool, expected: str
) -> None:
    monkeypatch.setattr(session, "spark_java_home", lambda _: "/java")
    monkeypatch.setattr(session, "quick_python", lambda _: "quick")
    with mock.patch.dict(os.environ):
        for name in NAMES:
            os.environ.pop(name, None)
        if named is not None:
            os.environ["PYSPARK_PYTHON"] = named
        session._set_environment(Path("work"), local=local)
        assert [os.environ[name] for name in NAMES] == [expected, expected]


def test_the_one_of_a_local_spark_is_this_one_without_the_archive_that_spark_puts_before_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = pythons.quick_python(tmp_path / "a folder")
    path = os.pathsep.join(["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-src.zip", str(tmp_path)])
    told = subprocess.run(
        [python, "-c", "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sys.argv[1:])", "a b", "*"],
        env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout == f"{sys.executable} /spark/python/lib/py4j-src.zip:{tmp_path} ['a b', '*']\n"
    monkeypatch.setattr(pyspark, "__path__", ["/opt/spark/python/pyspark"])
    assert pythons.quick_python(tmp_path) == sys.executable, "which would not find PySpark without it"
