"""The calls of one look at many partitions: what one of them has waited for in vain, no other waits for again."""

from __future__ import annotations

from time import monotonic
from typing import Any, Final

from delivery.client.calls import Calls
from delivery.client.hosts import Owners
from delivery.errors import DeadlineExceeded, HootError, HostUnreachable, MetadataUnavailable, NoHost, again
from delivery.metastore.live import Address
from delivery.metastore.records import HostRecord

LOOK_SECONDS: Final = 5.0
"""How long a look waits for a host that does not answer, and for partitions that cannot be opened, all together. A host
may have to wait two seconds for a subscriber."""
LEAST_SECONDS: Final = 0.25
"""And for one partition after that."""

_SILENCE: Final = (DeadlineExceeded, HostUnreachable, MetadataUnavailable, NoHost)
"""Errors of whoever was asked, and not of the partition that it was about."""


class Looks:
    """For one look, by any number of threads. Errors as Calls, those of a silent host at once the second time."""

    def __init__(self, calls: Calls, owners: Owners) -> None:
        self._calls, self._owners = calls, owners
        self._patience = LOOK_SECONDS
        self._silent: dict[Address | None, HootError] = {}
        """By the owner's address; None where there was no host to ask."""
        self._unheard: dict[Address, HootError] = {}
        """Hosts that did not answer `ask`: who observes nothing may serve all the same."""

    def call(self, queue: str, partition: int, method: str, *args: object) -> Any:  # noqa: ANN401 - a struct of the IDL
        """As Calls.call."""
        owner = self._owner(queue, partition)
        if (silence := self._silent.get(owner)) is not None:
            raise again(silence)
        began = monotonic()
        try:
            return self._calls.call(queue, partition, method, *args, timeout=max(self._patience, LEAST_SECONDS))
        except HootError as error:
            self._patience -= monotonic() - began
            if isinstance(error, _SILENCE):
                self._silent[owner] = error  # not who has it by now: nobody has asked that one
            raise

    def ask(self, host: HostRecord, method: str, *args: object) -> Any:  # noqa: ANN401 - as above
        """As Calls.ask."""
        address = (host.address, host.port)
        if (silence := self._unheard.get(address)) is not None:
            raise again(silence)
        try:
            return self._calls.ask(host, method, *args, timeout=LOOK_SECONDS)
        except HootError as error:
            if isinstance(error, _SILENCE):
                self._unheard[address] = error
            raise

    def _owner(self, queue: str, partition: int) -> Address | None:
        try:
            return self._owners.address(queue, partition)
        except (NoHost, MetadataUnavailable):
            return None
