"""The end of a queue, and of all that belongs to it.

Its record goes last, so that what breaks off can be done again. Somebody may subscribe until then, after the other
subscriptions were deleted: those of the queue's generation are looked for once more when the record is gone. Nobody
comes behind that, for who creates a subscription looks at the queue again when it is written.
"""

from __future__ import annotations

import contextlib
import secrets
from functools import partial

from delivery import wall
from delivery.errors import BadVersion, CorruptRecord, UnknownQueue, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.records import QueueRecord
from delivery.metastore.subscriptions import Subscriptions
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import QueueSettings, check_settings


class Ends(Subscriptions):
    """Deleting queues, and putting others in their place."""

    def delete_queue(self, name: str) -> str:
        """Delete a queue with its subscriptions, listeners, owners and sealed ranges; gives its generation.

        That is empty for a damaged one. When this breaks off before the last moment, the queue is still listed, and
        deleting it again ends the work. Raises UnknownQueue.
        """
        queues, generation = self.managers.queues, ""
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            version, found = self._ending(name)
            if version is None and attempt == 0:
                raise self._unknown_queue(name)
            if version is None:
                return generation
            generation = found
            self._delete_belongings(name)
            try:
                queues.delete_queue(name, version)
            except BadVersion:
                continue  # it was changed, or deleted and made again: then what belongs to it is looked for again
            except UnknownQueue:
                pass
            self._delete_late(name, generation)
            return generation
        raise crowded(f"queue {name!r}")

    def replace_queue(self, name: str, generation: str, settings: QueueSettings, copy_of: str) -> QueueRecord:
        """Another queue in the place of the one of this generation, which ends as if it were deleted; gives the new.

        The name is never free meanwhile. When this breaks off, the former one is still listed, with or without what
        belonged to it: replacing it again ends the work. Raises UnknownQueue, InvalidRequest.
        """
        check_settings(settings)
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._generation(name, generation)
            self._delete_belongings(name)
            made = QueueRecord(name, secrets.token_hex(8), wall.ms(), settings, copy_of=copy_of)
            try:
                self.managers.queues.update_queue(made, found.version)
            except BadVersion:
                continue
            self._delete_late(name, generation)
            return made
        raise crowded(f"queue {name!r}")

    def _ending(self, name: str) -> tuple[Version | None, str]:
        """The version and the generation of a queue; no version where there is none, no generation of a damaged one."""
        try:
            found = self.managers.queues.read_queue(name)
        except CorruptRecord:
            return self.managers.queues.read_version(name), ""
        return (None, "") if found is None else (found.version, found.value.generation)

    def _delete_belongings(self, name: str) -> None:
        """All but the record. Listeners go between the reading of the subscriptions' versions and their deletion."""
        managers, folder = self.managers, records.listeners_path(name)
        managers.subscriptions.delete_all_subscription_data(name, partial(self._zk.delete_tree, folder))
        self._zk.delete_tree(folder)
        places = self._places(name)
        managers.owners.delete_owner_infos(places)
        managers.persistence.delete_topic_persistence_infos(places)

    def _places(self, name: str) -> list[tuple[str, int]]:
        """The partitions of a queue; those that have a record, where the queue's cannot be read."""
        try:
            found = self.managers.queues.read_queue(name)
        except CorruptRecord:
            managers = self.managers
            owners = {place[:2] for page in managers.owners.owner_info_pages() for place in page}
            sealed = {place[:2] for page in managers.persistence.topic_persistence_info_pages() for place in page}
            return sorted((queue, partition) for queue, partition in owners | sealed if queue == name)
        return [] if found is None else [(name, partition) for partition in range(found.value.settings.partitions)]

    def _delete_late(self, queue: str, generation: str) -> None:
        """What was subscribed while the queue of this generation ended; what is of another one stays."""
        after: str | None = None
        while page := self.managers.subscriptions.list_subscriptions(queue, after):
            for name, found in page:
                if isinstance(found, Versioned) and found.value.generation == generation:
                    with contextlib.suppress(UnknownSubscription, UnknownQueue):
                        self._delete(queue, name, generation)
                    self._drop_folder(queue)
            after = page[-1][0]
