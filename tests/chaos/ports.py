"""Ports for the processes of a run, which bind them later: free ones, and none given twice."""

from __future__ import annotations

from delivery.embedded.ports import free_port

_given: set[int] = set()


def new_port() -> int:
    """A free port that no other process of this run was given."""
    while (port := free_port(None)) in _given:
        pass
    _given.add(port)
    return port
