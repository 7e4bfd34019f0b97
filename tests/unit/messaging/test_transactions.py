"""What a transaction sees of another one's messages, and its bytes (reference: Tephra's TTransaction)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from delivery.errors import InvalidRequest
from delivery.messaging.transactions import Snapshot, Verdict, read_snapshot, write_snapshot
from tests.topics import transaction

POINTERS = st.integers(1, 12)
SETS = st.sets(POINTERS, max_size=4)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    own = draw(POINTERS)
    return Snapshot(
        transaction=own, read_pointer=draw(POINTERS), write_pointer=draw(st.sampled_from([own, own + 1])),
        invalid=sorted(draw(SETS)), in_progress=sorted(draw(SETS)), checkpoints=sorted(draw(SETS)),
        visibility=draw(st.sampled_from([1, 2, 3])),
    )  # fmt: skip


@given(snapshots(), POINTERS, st.booleans())
def test_the_verdict_is_the_contracts(snapshot: Snapshot, pointer: int, rolled_back: bool) -> None:
    committed = pointer <= snapshot.read_pointer and pointer not in {*snapshot.invalid, *snapshot.in_progress}
    own = pointer in {snapshot.transaction, snapshot.write_pointer, *snapshot.checkpoints}
    if snapshot.visibility == 2 and pointer == snapshot.write_pointer:
        own = False
    if rolled_back:
        expected = Verdict.SKIP
    elif committed or own:
        expected = Verdict.TAKE
    elif pointer in snapshot.invalid:
        expected = Verdict.SKIP
    else:
        expected = Verdict.STOP
    assert snapshot.judge(pointer, rolled_back=rolled_back) is expected


def test_a_pointer_above_the_read_pointer_in_no_list_stops_the_reader() -> None:
    snapshot = Snapshot(transaction=10, read_pointer=9, write_pointer=10)
    assert snapshot.judge(11, rolled_back=False) is Verdict.STOP
    assert snapshot.judge(9, rolled_back=False) is Verdict.TAKE


@given(snapshots())
def test_the_bytes_of_a_client_are_read(snapshot: Snapshot) -> None:
    data = transaction(
        snapshot.transaction, snapshot.read_pointer, invalid=snapshot.invalid, in_progress=snapshot.in_progress,
        write=snapshot.write_pointer, checkpoints=snapshot.checkpoints, visibility=snapshot.visibility,
    )  # fmt: skip
    assert read_snapshot(data) == snapshot


def test_what_is_left_out_has_its_default_and_unknown_fields_are_passed_over() -> None:
    known = bytes.fromhex("0a0001 0000000000000007 0a0002 0000000000000006")
    text, truth, numbers = "0b0063 00000002 6162", "020065 01", "0f0066 08 00000001 00000005"
    snapshot = Snapshot(transaction=7, read_pointer=6, write_pointer=7)
    assert read_snapshot(known + b"\x00") == snapshot
    assert read_snapshot(known + bytes.fromhex(text + truth + numbers) + b"\x00") == snapshot


@given(st.binary(max_size=80))
def test_any_other_bytes_are_refused(data: bytes) -> None:
    try:
        found = read_snapshot(data)
    except InvalidRequest:
        return
    assert isinstance(found, Snapshot)


@given(st.data())
def test_bytes_that_were_cut_or_changed_are_refused_or_read(data: st.DataObject) -> None:
    whole = transaction(5, 4, invalid=[1, 2], in_progress=[3], checkpoints=[6], visibility=2)
    place = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:place], whole[:place] + data.draw(st.binary(min_size=1, max_size=4)) + whole[place + 1 :]):
        try:
            read_snapshot(broken)
        except InvalidRequest:
            continue


def test_a_list_that_claims_to_be_longer_than_the_transaction_is_refused() -> None:
    data = bytes.fromhex("0a000100000000000000070a000200000000000000060f00030a7fffffff00")
    with pytest.raises(InvalidRequest, match="longer than the transaction"):
        read_snapshot(data)


@given(snapshots())
def test_a_transaction_is_written_as_tephra_does(snapshot: Snapshot) -> None:
    written = write_snapshot(snapshot)
    assert read_snapshot(written) == snapshot
    known = transaction(
        snapshot.transaction, snapshot.read_pointer, invalid=snapshot.invalid, in_progress=snapshot.in_progress,
        write=snapshot.write_pointer, checkpoints=snapshot.checkpoints, visibility=snapshot.visibility,
    )  # fmt: skip
    first_in_progress = min(snapshot.in_progress, default=2**63 - 1)
    assert written == known.replace(b"\x0a\x00\x05" + bytes(8), b"\x0a\x00\x05" + first_in_progress.to_bytes(8))
