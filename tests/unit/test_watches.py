"""Watches that stay are set again on each new connection, whatever was on its way over the one before."""

from __future__ import annotations

from collections.abc import Callable

from delivery.metastore.watches import IN_FLIGHT_MAX, Event, Kind, Watches


class ScriptedServer:
    """Takes what is asked of it, and answers when a test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[bool], None]]] = []

    def __call__(self, kind: Kind, path: str, fired: Callable[[Event], None], done: Callable[[bool], None]) -> None:
        self.asked.append((path, done))

    def answer(self, is_set: bool = True) -> list[str]:
        """End all that is on its way, and what follows from that; the paths."""
        ended = []
        while self.asked:
            asked, self.asked = self.asked, []
            for path, done in asked:
                ended.append(path)
                done(is_set)
        return ended


def watching(server: ScriptedServer, count: int, hints: list[str]) -> Watches:
    watches = Watches(server)
    for number in range(count):
        watches.add("value", f"/{number:03}", lambda path=f"/{number:03}": hints.append(path))  # type: ignore[misc]
    return watches


def paths(count: int) -> list[str]:
    return [f"/{number:03}" for number in range(count)]


def test_no_more_are_on_their_way_at_once_than_the_connection_takes_and_each_gives_its_hint() -> None:
    server, hints = ScriptedServer(), list[str]()
    watching(server, IN_FLIGHT_MAX + 40, hints)
    assert [path for path, _ in server.asked] == paths(IN_FLIGHT_MAX)
    assert server.answer() == hints == paths(IN_FLIGHT_MAX + 40)


def test_what_a_broken_connection_ends_is_set_again_when_it_is_back() -> None:
    server, hints = ScriptedServer(), list[str]()
    watches = watching(server, IN_FLIGHT_MAX + 40, hints)
    server.answer(False)
    assert hints == []
    watches.set_all()
    server.answer()
    assert hints == paths(IN_FLIGHT_MAX + 40)


def test_a_connection_that_is_back_before_the_end_of_the_one_before_is_heard_of_sets_all_of_them() -> None:
    server, hints = ScriptedServer(), list[str]()
    watches = watching(server, IN_FLIGHT_MAX + 40, hints)
    before, server.asked = server.asked, []
    watches.set_all()
    for _, done in before:
        done(False)
    assert len(server.asked) == IN_FLIGHT_MAX, "the ends of before make no room for more than the connection takes"
    server.answer()
    assert hints == paths(IN_FLIGHT_MAX + 40)
