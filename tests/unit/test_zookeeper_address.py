"""ZooKeeper addresses as people type them."""

from __future__ import annotations

import pytest

from delivery.errors import ConfigError
from delivery.metastore.zookeeper import ZooKeeperClient


@pytest.mark.parametrize(
    "hosts",
    [
        "localhost:notaport", "", ":2181", "localhost:0", "localhost:65536", "a b:2181", "user@host:2181", "::1",
        "[::1:2181", "host:2181#x", "host:2181?x", "host:2181,", "h" * 64, "x..y", "host:2181/a//b", "host:2181/../x",
        "host:2181/a b", "host\x00:2181", "høst:2181", ",".join(["h:1"] * 65),
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_refused_before_anything_connects(hosts: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT") as caught:
        ZooKeeperClient(hosts)
    assert len(caught.value.message) < 6000
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("localhost", "localhost:2181"),
        (" a:1, b ", "a:1,b:2181"),
        ("[::1]:3000/x/y/", "[::1]:3000/x/y"),
        ("[::1]", "[::1]:2181"),
        ("127.0.0.1:2181/", "127.0.0.1:2181"),
    ],
)
def test_an_address_is_completed_with_the_default_port(hosts: str, expected: str) -> None:
    assert ZooKeeperClient(hosts).hosts == expected
