"""Whose turn it is to be read without a hint: each comes in time, and no time costs more than another for long."""

from __future__ import annotations

from hypothesis import given, strategies as st

from delivery.dispatch.turns import EACH_TIME, Turns

SIZES = st.dictionaries(st.text("abcdefgh", min_size=1), st.integers(0, 5 * EACH_TIME), min_size=1)


@given(SIZES, st.integers(1, 5))
def test_every_queue_has_its_turn_once_in_each_round_and_reading_is_bounded_over_time(
    sizes: dict[str, int], rounds: int
) -> None:
    turns = Turns()
    turns.note(sizes)
    weights = {queue: max(1, size) for queue, size in sizes.items()}
    each_round = -(-sum(weights.values()) // EACH_TIME)
    read: list[str] = []
    for number in range(1, rounds * each_round + 1):
        read += turns.next(sizes.keys())
        assert sum(weights[queue] for queue in read) < number * EACH_TIME + max(weights.values())
    counts = {queue: read.count(queue) for queue in sizes}
    assert min(counts.values()) >= rounds - 1
    assert sum(counts.values()) >= len(sizes), "after a round each was read"


def test_queues_that_come_and_go_move_nobody_out_of_turn() -> None:
    turns = Turns()
    queues = {f"q{number}": EACH_TIME for number in range(5)}
    turns.note(queues)
    assert turns.next(queues.keys()) == {"q0"}
    assert turns.next(queues.keys() - {"q1"}) == {"q2"}
    assert turns.next({*queues, "q25"}) == {"q25", "q3"}
    assert turns.next(queues.keys()) == {"q4"}
    assert turns.next(queues.keys()) == {"q0"}
    assert turns.next(set()) == set()
