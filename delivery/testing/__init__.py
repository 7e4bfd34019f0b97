"""The test kit: Hoot in the memory of a test, with virtual time. See docs/testing.md.

    pytest_plugins = ["delivery.testing.plugin"]   # in conftest.py: the fixture `hoot`, an Engine

Names are loaded when they are first used, so that a test run which does not need the engine does not load it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delivery.testing.engine import Engine
    from delivery.testing.history import Delivery, Restless

__all__ = ["Delivery", "Engine", "Restless"]

_HOMES: Final = {"Engine": "engine", "Delivery": "history", "Restless": "history"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"delivery.testing.{_HOMES[name]}"), name)
