"""What is kept in ZooKeeper is ready to be decoded by several threads at once as soon as it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.integration.embedded import ROOT

# In a process of its own: in this one the records were decoded long ago. msgspec reads annotations when it lays the
# fields of a struct out, which must not happen any more.
STORY = """\
import msgspec
from msgspec import _utils
from delivery.metastore import records
from delivery.metastore.managers import layout, records as managed
from delivery.metastore.tables import pages, zookeeper
def late(*_):
    raise AssertionError("laid out at the first decoding")
_utils._eval_type = late
kinds = [kind for kind in vars(records).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
assert len(kinds) > 4, kinds
kinds += [managed.OwnerInfo, managed.PersistenceInfo, managed.SubscriptionState, pages.Page, zookeeper.TableRecord]
kinds += [layout.MetaLayout]
for kind in kinds:
    msgspec.json.Decoder(kind)
"""


def test_records_are_laid_out_when_they_are_imported_and_not_by_the_first_threads_that_decode_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STORY], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
