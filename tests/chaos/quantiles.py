"""Quantiles of measured times."""

from __future__ import annotations

import math


def quantile(values: list[float], part: float) -> float:
    """The value below which that part of the values lies; the highest for small samples."""
    return sorted(values)[math.ceil(part * (len(values) - 1))]
