"""Hoot, a push-subscription event delivery engine. This package publishes, scans, administers; `subscriber` receives.

`delivery.connect` is where a program begins; `delivery.client` shows an example. Names are loaded when they are first
used: programs that only need, say, `delivery.errors` load neither ZooKeeper's client nor Thrift.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delivery.client import Client, NewMessage, PublishedMessage, Publisher, Queue, Receipt, connect
    from delivery.errors import HootError
    from delivery.ids import MessageId
    from delivery.model import Message, QueueSettings

    __version__: str

__all__ = [
    "Client",
    "HootError",
    "Message",
    "MessageId",
    "NewMessage",
    "PublishedMessage",
    "Publisher",
    "Queue",
    "QueueSettings",
    "Receipt",
    "__version__",
    "connect",
]

_HOMES: Final = {
    "Client": "client", "HootError": "errors", "Message": "model", "MessageId": "ids", "NewMessage": "client",
    "PublishedMessage": "client", "Publisher": "client", "Queue": "client", "QueueSettings": "model",
    "Receipt": "client", "connect": "client",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "__version__":
        found: object = import_module("delivery.config").software_version()
    elif name in _HOMES:
        found = getattr(import_module(f"delivery.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
