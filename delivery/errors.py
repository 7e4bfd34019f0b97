"""Every error that Hoot raises on purpose.

Each class has a `code` (the word that travels on the wire and in `--json`) and says by `retryable` whether the same
call may succeed later without being changed. Adapters translate foreign exceptions where they enter; retry policy looks
at `retryable` and at nothing else. A programmer's mistake is an assertion or a `TypeError`, never one of these.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

E = TypeVar("E", bound="HootError")


class HootError(Exception):
    """Base of all. `address` names the owning host (`host:port`) where an error knows it."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, address: str | None = None) -> None:
        super().__init__(message)
        self.address = address

    @property
    def message(self) -> str:
        """The one-line text, fit for a terminal."""
        return str(self.args[0])


# -- the caller asked for something that cannot be ------------------------------------------------------------------


class InvalidRequest(HootError):
    """A name, number, size or combination outside its documented limits; nothing was done."""

    code = "invalid_request"


class MessageTooLarge(InvalidRequest):
    """A body, key, header block or batch over its limit; nothing was stored."""

    code = "message_too_large"


class UnknownQueue(HootError):
    """No queue of that name."""

    code = "unknown_queue"


class AnsweredLongAgo(InvalidRequest):
    """A producer's batch that came before others which were taken since; which ids it got is not remembered."""

    code = "answered_long_ago"


class SequenceReused(InvalidRequest):
    """A producer's batch has the number of another one, which was taken: what it holds is not stored."""

    code = "sequence_reused"


class QueueClosed(HootError):
    """The queue is closed to publishers: it is being copied, or was, to another one; nothing was stored."""

    code = "queue_closed"


class QueueExists(HootError):
    """A queue of that name is already there."""

    code = "queue_exists"


class OutOfPlace(InvalidRequest):
    """A batch that is copied from another queue does not follow the last one in the partition; it was not stored."""

    code = "out_of_place"


class UnknownPartition(InvalidRequest):
    """The partition number is outside the queue's range."""

    code = "unknown_partition"


class UnknownSubscription(HootError):
    """No subscription of that name on that queue."""

    code = "unknown_subscription"


class SubscriptionExists(HootError):
    """A subscription of that name is on that queue already; it stays as it is."""

    code = "subscription_exists"


class UnknownSnapshot(HootError):
    """The subscription has no snapshot of that name."""

    code = "unknown_snapshot"


class SnapshotExists(HootError):
    """The subscription has a snapshot of that name already; it stays as it is."""

    code = "snapshot_exists"


class UnknownHost(HootError):
    """No region host of that id is registered."""

    code = "unknown_host"


class HostDraining(HootError):
    """The host takes no partitions: it gives away those it has, before it stops."""

    code = "host_draining"


class HostsRunning(HootError):
    """Region hosts are registered, and what was asked for is done to a cluster at rest only; nothing was done."""

    code = "hosts_running"


class SubscriptionBusy(HootError):
    """Another live subscriber holds this subscription (Hedwig: TOPIC_BUSY). `force=True` takes it over."""

    code = "subscription_busy"


class GroupMismatch(HootError):
    """The subscription has members with other options (its kind, filter, order, …): all members have the same."""

    code = "group_mismatch"


class ListenerRefused(InvalidRequest):
    """A listener's address is outside of the networks in which region hosts connect to listeners; nothing was done."""

    code = "listener_refused"


class UnknownScanner(InvalidRequest):
    """The scanner id was never given, was closed, or timed out."""

    code = "unknown_scanner"


class ScannerClosed(InvalidRequest):
    """`next` on a scanner that was closed."""

    code = "scanner_closed"


class Closed(InvalidRequest):
    """A call on a client, publisher or subscriber that was closed."""

    code = "closed"


class ConfigError(InvalidRequest):
    """A setting that cannot be used; the message lists every problem found, not just the first."""

    code = "bad_config"


# -- the engine cannot do it now ------------------------------------------------------------------------------------


class NotOwner(HootError):
    """This host does not own the partition; `address` is the owner's where it is known."""

    code = "not_owner"
    retryable = True


class Fenced(HootError):
    """A newer epoch owns the partition: what this owner wrote without confirmation does not count."""

    code = "fenced"
    retryable = True


class QueueFull(HootError):
    """A subscription has as much of the partition before it as the queue's limit allows; nothing was stored.

    Retryable: there is room again when that subscription has acknowledged some, or is deleted.
    """

    code = "queue_full"
    retryable = True


class OutOfSequence(HootError):
    """A producer's batch came before its predecessor; send them again in order."""

    code = "out_of_sequence"
    retryable = True


class UnknownOutcome(HootError):
    """The publish may or may not be stored. Asking again with the same producer sequence stores it once."""

    code = "unknown_outcome"
    retryable = True


class Throttled(HootError):
    """A limit on connections, buffers or calls in flight is reached; try again after a pause."""

    code = "throttled"
    retryable = True


class DeadlineExceeded(HootError):
    """The call took longer than its deadline. For a publish the outcome is unknown."""

    code = "deadline_exceeded"
    retryable = True


class HostUnreachable(HootError):
    """No connection to a region host, or it broke. For a publish under way the outcome is unknown."""

    code = "host_unreachable"
    retryable = True


class NoHost(HootError):
    """No region host is registered; start one with `hoot serve`."""

    code = "no_host"
    retryable = True


class SubscriberUnreachable(HootError):
    """The subscriber's listener does not answer, or another program answers in its place."""

    code = "subscriber_unreachable"
    retryable = True


class MetadataUnavailable(HootError):
    """ZooKeeper cannot be reached or did not answer in time. The engine waits; it does not guess."""

    code = "metadata_unavailable"
    retryable = True


class BadVersion(HootError):
    """A compare-and-set lost: somebody changed the record in between."""

    code = "bad_version"
    retryable = True


class StorageUnavailable(HootError):
    """The store refuses or fails (disk full, failed fsync, folder gone); nothing more is acknowledged."""

    code = "storage_unavailable"
    retryable = True


class ClockWrong(HootError):
    """The host's clock is so far from the ids stored that it can give no more; nothing was stored.

    Retryable: clocks are set right, and another host may have a right one.
    """

    code = "clock_wrong"
    retryable = True


class ServiceStopping(HootError):
    """The host is shutting down; another will take over."""

    code = "stopping"
    retryable = True


# -- something is broken and a person has to look -------------------------------------------------------------------


class CorruptRecord(HootError):
    """Bytes that do not parse or whose checksum is wrong; the partition stops loudly rather than skip them."""

    code = "corrupt_record"


class ArchiveUnreadable(HootError):
    """Archived messages cannot be read here: a file is missing or damaged, or pyarrow is not installed."""

    code = "archive_unreadable"


class ArchiveRefused(HootError):
    """The folder cannot take or hold an archive, or another job is at work there; nothing was recorded."""

    code = "archive_refused"


class ProtocolError(HootError):
    """The peer sent what no correct peer sends; the connection is closed."""

    code = "protocol_error"


class MessagesGone(HootError):
    """What was stored of a queue is not in the store any more: somebody dropped it, emptied it, or named another one.

    Nothing is stored in its place, as if there had been nothing: it is brought back, or the queue is deleted.
    """

    code = "messages_gone"


class WrongStore(HootError):
    """The queue is in another store than the host's, or in another data folder; nothing of it is served or stored."""

    code = "wrong_store"


class LayoutMismatch(HootError):
    """Stored data of another layout version; the start is refused and nothing was touched."""

    code = "layout_mismatch"


class DataFolderError(HootError):
    """The data folder cannot be created, written or locked."""

    code = "data_folder"


class ForeignData(HootError):
    """A data folder and the ZooKeeper that was named have nothing in common: of two clusters? Nothing was done."""

    code = "foreign_data"


class PortInUse(HootError):
    """The address to listen on is taken by another program."""

    code = "port_in_use"


class EmbeddedError(HootError):
    """A child process of the embedded set-up (ZooKeeper, Java) is missing, failed to start, or died."""

    code = "embedded_failed"


def _leaves(base: type[HootError]) -> dict[str, type[HootError]]:
    below = [_leaves(child) for child in base.__subclasses__()]
    return {base.code: base, **{code: kind for found in below for code, kind in found.items()}}


_BY_CODE = _leaves(HootError)


def travels(kind: type[E]) -> type[E]:
    """Have `from_code` know an error that is defined elsewhere."""
    _BY_CODE[kind.code] = kind
    return kind


def from_code(code: str, message: str, address: str | None = None) -> HootError:
    """The error that a peer reported by `code`; an unknown code gives the base class, its text kept."""
    return _BY_CODE.get(code, HootError)(message, address=address or None)


def again(error: HootError) -> HootError:
    """A fresh copy to raise: one instance raised by several tasks would gather all their tracebacks."""
    return type(error)(error.message, address=error.address)
