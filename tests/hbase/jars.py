"""HBase's jars: those of the image in `docker/hbase`, fetched once by Maven into the user's cache and checked.

Maven asks whatever registry it is set up for, so no address stands here. What a cache holds under its final name was
checked before it got that name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGE = Path(__file__).parents[2] / "docker" / "hbase"
POM = IMAGE / "pom.xml"
SUMS = IMAGE / "jars.sha256"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_FETCH_SECONDS = 900


class JarsError(Exception):
    """The jars cannot be had; the message says why."""


def hbase_jars() -> list[Path]:
    """The jars, fetched if they are not there yet (some 115 MB). Raises JarsError."""
    wanted = _wanted()
    place = _cache() / f"hbase-jars-{hashlib.sha256(SUMS.read_bytes()).hexdigest()[:16]}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".hbase-jars-") as draft:
            _fetch(Path(draft) / "jars")
            _check(Path(draft) / "jars", wanted)
            if not place.is_dir():  # another run may have come first
                (Path(draft) / "jars").rename(place)
    return [place / name for name in sorted(wanted)]


def _wanted() -> dict[str, str]:
    """The checksum of each jar by its name."""
    pairs = (line.split() for line in SUMS.read_text().splitlines())
    return {name: checksum for checksum, name in pairs}


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hoot"


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsError("HBase's jars are fetched by Maven, which is not installed (the command mvn)")
    print("Fetching HBase's jars with Maven (some 115 MB, once)", file=sys.stderr, flush=True)
    command = [maven, "--quiet", "--batch-mode", "--file", str(POM), _COPY,
               "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]  # fmt: skip
    run = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", timeout=_FETCH_SECONDS, check=False,
    )  # fmt: skip
    if run.returncode:
        raise JarsError(f"Maven could not fetch HBase's jars:\n{run.stdout[-2000:]}")


def _check(folder: Path, wanted: dict[str, str]) -> None:
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise JarsError(f"these jars are missing, new or not what {SUMS.name} says: {', '.join(wrong)}")
