"""`hoot bench compare`: Hoot and each peer that is here, in one run on one machine, in turn."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from delivery.bench.peers.base import Peer
from delivery.bench.rounds import TOGETHER, Figures, Load, Round
from delivery.errors import HootError

_RATES: Final = ("per_second", "p50_ms", "p99_ms", "p999_ms")


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One peer in one case over all runs, or why there is no figure."""

    peer: str
    durability: str
    case: str = ""
    """Empty for a peer that is not here."""
    server: str = ""
    client: str = ""
    size: int = 0
    messages: int = 0
    runs: int = 0
    per_second: float | None = None
    """Medians, as the next three are."""
    per_second_min: float | None = None
    per_second_max: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    p99_ms_min: float | None = None
    p99_ms_max: float | None = None
    absent: str = ""
    """Why there is no figure."""


class _Running(msgspec.Struct):
    """A peer whose server is up."""

    peer: Peer
    address: str
    server: str
    found: dict[str, list[Figures]]
    trouble: dict[str, str]


def compare(
    peers: Sequence[Peer], cases: Sequence[str], load: Load, runs: int, *, tell: Callable[[str], object] = bool,
    make_round: Callable[[Peer, str, Load], Round] = Round,
) -> Iterator[Row]:  # fmt: skip
    """Rows of every peer; those that cannot be measured say why. `tell` hears what is being done.

    All servers run all the time, and in each run another peer is the first.
    """
    absent = {peer.name: lacks for peer in peers if (lacks := peer.lacking())}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hoot-compare-")))
        running = []
        for peer in (one for one in peers if one.name not in absent):
            tell(f"starting {peer.name}")
            try:
                running.append(_started(stack, peer, folder / peer.name))
            except Exception as error:  # noqa: BLE001 - of whatever library it has
                absent[peer.name] = _described(error)
        turns = deque(running)
        for number in range(runs):
            for one in turns:
                tell(f"run {number + 1} of {runs}: {one.peer.name}")
                _measure(one, make_round(one.peer, one.address, load), cases)
            turns.rotate(-1)
        by_name = {one.peer.name: one for one in running}
        for peer in peers:
            if peer.name in absent:
                yield Row(peer=peer.name, durability=peer.durability, absent=absent[peer.name])
            else:
                yield from _rows(by_name[peer.name], cases, load)


def _started(stack: ExitStack, peer: Peer, folder: Path) -> _Running:
    folder.mkdir()
    address = stack.enter_context(peer.server(folder))
    return _Running(peer, address, peer.server_version(address), {}, {})


def _measure(one: _Running, round_of: Round, cases: Sequence[str]) -> None:
    """A case that failed once has no figure at all, and is not tried again."""
    for together in TOGETHER:
        wanted = [case for case in together if case in cases and case not in one.trouble]
        try:
            for found in round_of.figures(wanted):
                one.found.setdefault(found.case, []).append(found)
        except Exception as error:  # noqa: BLE001 - as above
            one.trouble.update(dict.fromkeys(wanted, _described(error)))


def _described(error: Exception) -> str:
    return error.message if isinstance(error, HootError) else f"{type(error).__name__}: {error}"


def _rows(one: _Running, cases: Sequence[str], load: Load) -> Iterator[Row]:
    for case in cases:
        row = Row(
            peer=one.peer.name, durability=one.peer.durability, case=case, server=one.server, client=one.peer.client(),
            size=load.size,
        )  # fmt: skip
        if case in one.trouble:
            yield msgspec.structs.replace(row, absent=f"no figure: {one.trouble[case]}")
        elif case in one.found:
            yield _summed(row, one.found[case])


def _summed(row: Row, found: Sequence[Figures]) -> Row:
    medians: Mapping[str, float | None] = {name: _median(getattr(one, name) for one in found) for name in _RATES}
    rates, tails = [one.per_second for one in found], [one.p99_ms for one in found if one.p99_ms is not None]
    return msgspec.structs.replace(
        row, messages=found[0].messages, runs=len(found), **medians, per_second_min=min(rates),
        per_second_max=max(rates), p99_ms_min=min(tails, default=None), p99_ms_max=max(tails, default=None),
    )  # fmt: skip


def _median(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return round(median(there), 3) if there else None
