"""A story for the tests of the checker: all is well in it, and it has a bit of everything."""

from __future__ import annotations

import msgspec

from tests.chaos.cluster import Listens
from tests.chaos.limits import CAPS
from tests.chaos.neighbours import LEAST
from tests.chaos.story import GRACE_SECONDS, Attempt, Fault, Gauge, Move, Put, Row, Seen, Story, Written

WINDOW = 4
MESSAGES = 12
FAULT_AT = 100.0


def story() -> Story:
    """Two partitions, two subscriptions, a fault at 100 s after which partition 0 goes back by two messages."""
    made = Story(subscriptions=(Listens("whole"), Listens("filtered", topics=("a",))), window=WINDOW, partitions=2)
    for number in range(1, MESSAGES + 1):
        body, topic, partition, at = f"p.1.{number}", "a" if number % 3 else "-", number % 2, float(number)
        made.puts[body] = Put(body, "p.1", number, topic, number, at, "stored", (partition, number * 10))
        made.scan.append(Row(partition, number * 10, topic, body, number))
    made.puts["p.1.99"] = Put("p.1.99", "p.1", 99, "-", 99, 20.0, "refused", code="throttled")
    made.puts["p.1.98"] = Put("p.1.98", "p.1", 98, "-", 98, 20.0, "unknown")
    made.tail = list(made.scan)
    made.command_scan = list(made.scan)
    for one in made.subscriptions:
        wanted = [row for row in made.scan if one.wants(row.partition, row.topic)]
        made.calls[one.name] = [called(row, row.id / 10 + 0.5) for row in wanted]
        for row in wanted:
            made.seen.append(Seen(row.id / 10 + 0.6, one.name, row.partition, row.id, 1))
    again = [row for row in made.scan if row.partition == 0][-2:]
    made.calls["whole"] += [called(row, FAULT_AT + 1) for row in again]
    made.faults = [Fault("host-kill", "host-1", FAULT_AT, frozenset({0}), FAULT_AT + 2)]
    made.seen += [Seen(50.0, "", 0, 0, 1), Seen(FAULT_AT + 0.5, "", 0, 0, 2)]
    made.written = [Written(partition, 1, MESSAGES * 10, 1) for partition in (0, 1)]
    made.moves = {"whole": [Move(FAULT_AT + 0.9, 0, 0, 1, 2)], "filtered": []}
    processes = {"host": "host-1", "client": "whole"}
    made.gauges = [
        Gauge(5.0, processes[kind], what, cap / 2) for kind, caps in CAPS.items() for what, cap in caps.items()
    ]
    made.attempts = [
        Attempt(5.0, "noise", "closed", "closed"), Attempt(FAULT_AT, "noise", "closed", "untold"),
        Attempt(6.0, "batch", "corrupt_record", "put-off"), Attempt(7.0, "batch", "corrupt_record", "corrupt_record"),
    ]  # fmt: skip
    return made


def add(told: Story, at: float, seconds: float) -> None:
    """One more message to partition 0, which takes so long to the callbacks of `whole`."""
    number = len(told.puts) + 1
    row = Row(0, int(at * 1000), "-", f"p.2.{number}", number, at + seconds)
    told.puts[row.body] = Put(row.body, "p.2", number, "-", number, at, "stored", row.place)
    for rows in (told.scan, told.tail, told.command_scan, told.calls["whole"]):
        rows.append(row)
    told.seen.append(Seen(row.at + 0.1, "whole", 0, row.id, 2))
    told.written.append(Written(0, row.id, row.id, 2))


def a_fault_of_the_filtered_alone(told: Story, seconds: float) -> None:
    """What `whole` gets during it takes so long; before it, half a second."""
    begun = FAULT_AT + 2 * GRACE_SECONDS
    for number in range(LEAST):
        add(told, begun - 5 + number / LEAST, 0.5)
    told.faults.append(Fault("subscriber-pause", "filtered", begun, healed=begun + 2))
    for number in range(LEAST):
        add(told, begun + number / LEAST, seconds)


def called(row: Row, at: float) -> Row:
    return msgspec.structs.replace(row, at=at)
