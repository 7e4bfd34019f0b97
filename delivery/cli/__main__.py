"""`python -m delivery.cli`: the same as the command `hoot`."""

from __future__ import annotations

from delivery.cli import main

main()
