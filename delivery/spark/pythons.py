"""The Python that a local Spark starts: this one, with PySpark as it is installed.

Spark puts an archive of PySpark before everything else, in which nothing is compiled: each of its Pythons would compile
it anew, which takes thrice as long as all else that it does until it is ready. A stream's has ten seconds for that.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pyspark

from delivery.embedded.folder import write_atomically

_SCRIPT: Final = """\
#!/bin/sh
path= IFS=:
for part in $PYTHONPATH; do
    case $part in */python/lib/pyspark.zip) ;; *) path=$path${{path:+:}}$part ;; esac
done
PYTHONPATH=$path
exec {python} "$@"
"""


def quick_python(work: Path) -> str:
    """A program in the folder that is this Python, if that finds PySpark by itself; else this one. Raises OSError."""
    installed = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    if Path(pyspark.__path__[0]).parent not in installed:
        return sys.executable
    program = work.absolute() / "python"
    work.mkdir(parents=True, exist_ok=True)
    write_atomically(program, _SCRIPT.format(python=shlex.quote(sys.executable)), mode=0o755)
    return str(program) if os.access(program, os.X_OK) else sys.executable
