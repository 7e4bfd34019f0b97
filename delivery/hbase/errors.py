"""What a failed call to a gateway means: was it done, may it be asked again, is the connection still good?

A gateway answers with an exception of its own (`IOError`, `IllegalArgument`) that holds a Java stack trace as text. The
connection is as good as before then. Whatever breaks the connection leaves open whether the call was done.
"""

from __future__ import annotations

import re
from typing import Final

from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TException
from thriftpy2.transport import TTransportException

from delivery.errors import HootError, InvalidRequest, MessageTooLarge, StorageUnavailable

TEXT_MAX: Final = 200


class NoTable(StorageUnavailable):
    """The table is not there, or is on its way out."""


class TableExists(StorageUnavailable):
    """A table of that name is there already."""


class Unreached(StorageUnavailable):
    """No gateway was reached: nothing was done."""


class Lost(StorageUnavailable):
    """The connection broke or the answer took too long: it may have been done or not."""


class Denied(StorageUnavailable):
    """HBase does not let this user do it: nothing was done."""


class CellTooLarge(MessageTooLarge):
    """HBase takes no cell of more than `limit` bytes, row and column counted: such a cell was not put.

    None where only a gateway's own limit is known to be passed, by the largest one at least.
    """

    def __init__(self, message: str, limit: int | None) -> None:
        super().__init__(message)
        self.limit = limit


class Passing(StorageUnavailable):
    """HBase refused for a reason that passes: a region on its way to another server, a scanner that was forgotten."""


_PASSING: Final = (
    "NotServingRegion", "RegionTooBusy", "RegionMoved", "RegionOpening", "UnknownScanner", "ScannerTimeout",
    "LeaseException", "OutOfOrderScannerNext", "scanner ID is invalid", "CallQueueTooBig", "ServerNotRunningYet",
    "PleaseHoldException", "MasterNotRunning", "Internal error processing",
)  # fmt: skip
_NO_TABLE: Final = ("TableNotFound", "TableNotEnabled")
_DENIED: Final = "AccessDenied"
_TOO_LARGE: Final = re.compile(r"exceeds limit of (\d+)|KeyValue size too large")
"""What a region server says of a cell above `hbase.server.keyvalue.maxsize`, and a gateway of one above
`hbase.client.keyvalue.maxsize`."""

BROKEN: Final = (OSError, EOFError, TTransportException, TProtocolException)
"""The exceptions after which a connection is of no use."""
REFUSED: Final = TException
"""Any other exception of a call: the gateway answered."""


def refusal(error: Exception) -> HootError:
    """The error for a gateway's own exception, in one line without the stack trace."""
    text = _text(error)
    if any(word in text for word in _NO_TABLE):
        return NoTable(f"HBase: {_line(text)}")
    if any(word in text for word in _PASSING):
        return Passing(f"HBase: {_line(text)}")
    if _DENIED in text:
        return Denied(f"HBase denies permission: {_line(text)}")
    if type(error).__name__ == "AlreadyExists" or "TableExistsException" in text:
        return TableExists(f"HBase: {_line(text)}")
    if (limit := _TOO_LARGE.search(text)) is not None:
        return CellTooLarge(f"HBase: {_line(text)}", int(limit[1]) if limit[1] else None)
    if type(error).__name__ == "IllegalArgument":
        return InvalidRequest(f"HBase: {_line(text)}")
    return StorageUnavailable(f"HBase: {_line(text)}")


def broken(error: Exception, address: str) -> Lost:
    """The error for a connection that broke in the middle of a call."""
    return Lost(f"HBase Thrift gateway {address}: {_line(_text(error))}")


def _text(error: Exception) -> str:
    """What it says. Text of thriftpy2's exceptions may be bytes, on which their own `str` fails."""
    said = getattr(error, "message", None)
    if isinstance(said, bytes):
        return said.decode(errors="replace")
    return said if isinstance(said, str) and said else repr(error)


def _line(text: str) -> str:
    first = text.split("\n", 1)[0].strip()
    for package in ("org.apache.hadoop.hbase.client.", "org.apache.hadoop.hbase.", "java.lang."):
        first = first.replace(package, "")
    return first if len(first) <= TEXT_MAX else f"{first[:TEXT_MAX]}…"
