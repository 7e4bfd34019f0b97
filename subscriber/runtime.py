"""The Runtime: one started subscriber. Its Thrift server takes pushes, its dispatch thread calls the listeners.

    push → ListenerService.begin (trio, in order of arrival: known? stale?) → dispatch thread (inbox, decode, listeners)
         → back to the loop → reply, in order

Bytes of pushes that wait are bounded by the server, which reads no further call of a connection while too many are
unanswered, and by the window of the region host.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable, Iterable
from functools import partial

import msgspec
import trio

from delivery.errors import HootError, InvalidRequest, MetadataUnavailable, SubscriptionBusy
from delivery.metastore.records import ListenerRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber.dispatch import Dispatcher
