"""What each of Spark's Python workers loads before it has any row: a job begins with a handful of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_source_loads_no_pandas() -> None:
    """Which Arrow does by itself with the first value that it makes, and which takes longer than everything else."""
    told = subprocess.run(
        [sys.executable, "-c", "import sys, pyspark_hoot; print('pandas' in sys.modules, 'pyarrow' in sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.split() == ["False", "True"]
