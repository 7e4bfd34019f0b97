"""How subscriptions are: what the owners of their partitions tell, and what only a client of all of them can know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec

from delivery import wall
from delivery.client.looks import Looks
from delivery.dispatch.observation import Observation, Stage
from delivery.errors import HootError
from delivery.metastore.catalog import Catalog
from delivery.metastore.live import LiveHosts
from delivery.metastore.records import HostRecord, ListenerRecord, SubscriptionRecord

PAGE: Final = 256
HOSTS_AT_ONCE: Final = 16


Told = Mapping[str, dict[int, Observation] | HootError]
"""By host, what it told of its partitions, or why it did not."""


class Health:
    """Over one catalog, for one look. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, looks: Looks) -> None:
        self._catalog, self._looks = catalog, looks

    def observations(
        self, record: SubscriptionRecord, attached: Sequence[ListenerRecord]
    ) -> dict[int, Observation]:  # fmt: skip
        """Of all partitions of a subscription, to which these are attached. All who may know are asked at once.

        Raises MetadataUnavailable.
        """
        live = LiveHosts(self._catalog.readable_hosts()[0])
        owners = self._catalog.readable_owners(record.queue)[0]
        hosts = {partition: live.owner(owners.get(partition)) for partition in record.starts}
        asked = {host.host: host for host in hosts.values() if host is not None}
        if None in hosts.values():  # those who would own it know why they do not
            asked |= {host.host: host for host in live.able}
        unserved: Stage | None = "pulled" if attached else "no_listener"
        if not all(one.pulls for one in attached):
            unserved = None
        told = self._ask(record, asked) if unserved is None and asked else {}
        return {partition: _merged(partition, host, told, unserved) for partition, host in hosts.items()}

    def _ask(self, record: SubscriptionRecord, hosts: Mapping[str, HostRecord]) -> Told:
        with ThreadPoolExecutor(min(len(hosts), HOSTS_AT_ONCE), "hoot-asking") as threads:
            return dict(zip(hosts, threads.map(partial(self._ask_one, record), hosts.values()), strict=True))

    def _ask_one(self, record: SubscriptionRecord, host: HostRecord) -> dict[int, Observation] | HootError:
        try:
            return {one.partition: one for one in self._pages(record, host)}
        except HootError as error:
            return error

    def _pages(self, record: SubscriptionRecord, host: HostRecord) -> Iterator[Observation]:
        after = -1
        while True:
            page = self._looks.ask(host, "observe", record.queue, record.name, after, PAGE)
            for one in page:
                told = {name: value for name, value in vars(one).items() if value is not None}
                yield msgspec.structs.replace(
                    msgspec.convert(told, Observation, from_attributes=True), host=host.host_port
                )  # fmt: skip
            if len(page) < PAGE:
                return
            after = page[-1].partition


def _merged(partition: int, host: HostRecord | None, told: Told, unserved: Stage | None) -> Observation:
    """What the owner told of a partition; without that, what can be said of it from here.

    `unserved` is the stage of a subscription that no host is to deliver; whoever attaches to it makes one take it.
    """
    answer = {} if host is None else told.get(host.host, {})
    if isinstance(answer, dict) and partition in answer:
        return answer[partition]
    stage: Stage = "no_owner" if host is None else "starting"
    trouble = ""
    if unserved is not None:
        stage = unserved
    elif isinstance(answer, HootError):
        stage, trouble = "host_unreachable", answer.message
    elif host is None:
        others = [one[partition] for one in told.values() if isinstance(one, dict) and partition in one]
        trouble = next((one.trouble for one in others if one.trouble), "")
    return Observation(
        partition=partition, now_ms=wall.ms(), stage=stage, trouble=trouble,
        host="" if host is None else host.host_port,
    )  # fmt: skip
