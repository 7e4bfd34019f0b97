"""Each peer of `hoot bench compare` that is installed here passes a round of every case; the others are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from delivery.bench.peers.every import EVERY
from delivery.bench.rounds import CASES, Load, Round

pytestmark = [pytest.mark.integration, pytest.mark.nightly]


@pytest.mark.parametrize("name", EVERY)
def test_a_round_of_every_case(name: str, tmp_path: Path) -> None:
    peer = EVERY[name]
    if lacks := peer.lacking():
        pytest.skip(lacks)
    with peer.server(tmp_path) as address:
        assert peer.server_version(address)
        load = Load(size=100, messages=2000, rate=500, seconds=1, subscriptions=2)
        found = list(Round(peer, address, load).figures(CASES))
    assert sorted(one.case for one in found) == sorted(CASES)
