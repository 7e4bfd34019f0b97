"""Where a region host connects to listeners: which addresses it refuses, and that a name is looked up once."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from delivery.config import HostConfig
from delivery.errors import ConfigError, HootError, ListenerRefused, SubscriberUnreachable, from_code
from delivery.metastore.live import parse_address
from delivery.metastore.records import ListenerRecord
from delivery.networks import Networks, host_port, parse_networks
from delivery.rpc.hello import is_alive
from delivery.rpc.pinned import allowed_addresses, connect
from delivery.rpc.server import open_listeners

EVERYWHERE = ["10.0.0.5", "172.17.0.2", "192.168.1.9", "93.184.216.34", "2001:db8::5", "fd12::1"]
NOWHERE = [
    "169.254.169.254", "169.254.0.1", "fe80::1", "fd00:ec2::254", "100.100.100.200", "0.0.0.0", "::", "224.0.0.1",
    "ff02::1", "255.255.255.255", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
]  # fmt: skip
LOOPBACK = ["127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"]


def is_allowed(networks: Networks, address: str) -> bool:
    return not networks.refusal(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", [*EVERYWHERE, *NOWHERE, *LOOPBACK])
def test_without_settings_machines_are_allowed_and_what_is_none_is_not(address: str) -> None:
    assert is_allowed(Networks(loopback=True), address) == (address not in NOWHERE)
    assert is_allowed(Networks(loopback=False), address) == (address in EVERYWHERE)


def test_what_is_named_is_allowed_and_nothing_else() -> None:
    networks = Networks(parse_networks("10.0.0.0/8, 169.254.7.0/24,::1"))
    assert [one for one in [*EVERYWHERE, *NOWHERE, *LOOPBACK] if is_allowed(networks, one)] == ["10.0.0.5", "::1"]
    assert is_allowed(networks, "169.254.7.1")
    assert is_allowed(networks, "::ffff:10.1.1.1")


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "ten", "10.0.0.0/8,,x"])
def test_what_is_no_network_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener_networks: '.*' is no network .* expected as in"):
        HostConfig(listener_networks=text).check()


@pytest.mark.parametrize(
    ("address", "zookeeper", "allowed"),
    [
        ("127.0.0.1", "zk1:2181,zk2:2181", True),
        ("localhost", "zk:2181", True),
        ("0.0.0.0", "127.0.0.1:2181/hoot", True),
        ("10.0.0.1", "[::1]:2181", True),
        ("10.0.0.1", "127.0.0.1:2181,zk2:2181", False),
        ("hoot", "zk:2181", False),
    ],
)
def test_loopback_is_allowed_where_the_engine_is_on_one_machine(address: str, zookeeper: str, allowed: bool) -> None:
    assert HostConfig(address=address, zookeeper=zookeeper).check().networks.loopback == allowed


class Names(trio.abc.HostnameResolver):
    """What each look-up of a name gives, one after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def getaddrinfo(self, host: Any, port: Any, *hints: int) -> Any:
        await trio.lowlevel.checkpoint()
        if not self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, hints[1], 0, "", (one, port or 0))
            for one in self.answers.pop(0)
        ]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise AssertionError("nobody asks for names")


def with_names(names: Names, work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        trio.socket.set_custom_hostname_resolver(names)
        return await work()

    return trio.run(main)


def test_a_name_is_allowed_by_what_it_resolves_to() -> None:
    networks = Networks(loopback=False)

    async def ask() -> list[str]:
        return await allowed_addresses(networks, "listener.example")

    assert with_names(Names(["169.254.169.254", "10.0.0.5", "127.0.0.1"]), ask) == ["10.0.0.5"]
    with pytest.raises(ListenerRefused, match=r"at listener.example, which is 169.254.169.254: .* --listener-networks"):
        with_names(Names(["169.254.169.254"]), ask)
    with pytest.raises(SubscriberUnreachable, match="cannot be resolved"):
        with_names(Names(), ask)


def test_the_own_name_of_a_machine_may_be_debians_address_for_it() -> None:
    async def ask(name: str) -> list[str]:
        return await allowed_addresses(Networks(loopback=False), name)

    assert with_names(Names(["127.0.1.1"]), lambda: ask(socket.gethostname())) == ["127.0.1.1"]
    with pytest.raises(ListenerRefused):
        with_names(Names(["127.0.1.1"]), lambda: ask("another-name"))
    with pytest.raises(ListenerRefused):
        with_names(Names(["127.0.0.1"]), lambda: ask(socket.gethostname()))


def test_a_connection_goes_to_the_address_that_was_looked_at_and_to_no_other() -> None:
    names = Names(["127.0.0.2", "127.0.0.1"], ["169.254.169.254"])

    async def story() -> None:
        listener = trio.socket.socket()
        await listener.bind(("127.0.0.1", 0))
        listener.listen()
        connection = await connect(Networks(), "listener.example", listener.getsockname()[1])
        accepted, _ = await listener.accept()
        assert accepted.getsockname()[0] == "127.0.0.1", "what does not listen is passed over"
        await connection.aclose()
        accepted.close()
        listener.close()

    with_names(names, story)
    assert len(names.answers) == 1, "the name was looked up once"


def listener_at(address: str, port: int) -> ListenerRecord:
    return ListenerRecord(address=address, port=port, token="t" * 16)


def test_who_is_asked_whether_it_lives_is_asked_in_the_allowed_networks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever subscribes would else have hosts, and other subscribers, call any address."""
    everywhere, nowhere = Networks(), Networks(("10.0.0.0/8",))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def look_up(host: str, port: int | None, *_: int, **__: int) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port or 0))]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        for address in ("127.0.0.1", "listener.example"):
            assert is_alive(listener_at(address, port), "q", "s", [everywhere, nowhere]), "it may be alive"
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
        assert is_alive(listener_at("listener.example", port), "q", "s", [everywhere]), "it says nothing"
        server.accept()[0].close()
    assert not is_alive(listener_at("127.0.0.1", port), "q", "s", [everywhere]), "nobody listens there any more"


@pytest.mark.parametrize("address", ["256.1.1.1", "192.0.2.1", "a..b", "x" * 300, "☃☃"])
def test_nobody_listens_at_an_address_that_is_not_this_machines_or_nobodys(address: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        trio.run(open_listeners, address, 0)


def test_an_address_and_a_port_are_one_word_that_reads_back() -> None:
    for address, word in (("10.0.0.1", "10.0.0.1:80"), ("host.example", "host.example:80"), ("::1", "[::1]:80")):
        assert host_port(address, 80) == word
        assert parse_address(word) == (address, 80)
    assert urlsplit(f"http://{host_port('fd00::7', 8080)}/metrics").port == 8080


def test_the_error_is_told_by_its_code() -> None:
    told: HootError = from_code("listener_refused", "no")
    assert type(told) is ListenerRefused
    assert not told.retryable
