"""The catalog's transactions: which host manages them, and what it keeps."""

from __future__ import annotations

from delivery.metastore.access import Access
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.managers.transactions import Managed
from delivery.metastore.tables.versions import Version, Versioned


class Transactions(Access):
    """Read and written by version: see `TransactionRecords`."""

    def transactions(self) -> Versioned[Managed] | None:
        """What is kept of transactions, None before the first. Raises CorruptRecord."""
        return self.managers.transactions.read()

    def transaction_manager(self) -> OwnerInfo | None:
        """The host that manages transactions, if it lives with that session; None before the first transaction."""
        return self.managers.transactions.read_manager()

    def keep_transactions(self, managed: Managed, version: Version) -> Version:
        """Keep what the manager of transactions says, under a version. Raises BadVersion, InDoubt."""
        return self.managers.transactions.write(managed, version)
