"""The kinds of subscriptions, and how the partitions of a group are spread over its members. Plain decisions.

Who holds what is kept with the preferences, and moved by compare-and-set by whichever host first sees that it does not
fit the members any more. It could be computed by every host from the list of members alone, by a hash: but then a
member that comes would take partitions from all others *and* have them exchange some, or the shares would be uneven.
What is stored is as even as can be with the fewest moves, hosts of different versions agree on it, and people can read
it. It is no proof of anything, and need not be: only the owner of a partition pushes from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, cast, get_args

from delivery.errors import InvalidRequest

Kind = Literal["exclusive", "failover", "shared", "key_shared"]
"""`exclusive`: one subscriber. `failover`: one of several members gets everything, the others stand by. `shared`: the
partitions are spread over the members. `key_shared`: each partition is shared by all members, key by key; who has what
of it is kept with the state of the partition, and is its owner's business alone."""
KINDS: Final[tuple[str, ...]] = get_args(Kind)
SPREAD: Final = ("failover", "shared")
"""Those whose partitions have one member each."""

Holders = Mapping[str, tuple[int, ...]]
"""Per member the partitions that it gets, rising; none for who stands by."""


def check_kind(kind: object) -> Kind:
    """`kind` if there is such a one. Raises InvalidRequest."""
    if kind not in KINDS:
        raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}, not {str(kind)[:40]!r}")
    return cast("Kind", kind)


def assign(
    kind: Kind, members: Iterable[str], partitions: Iterable[int], previous: Holders
) -> dict[str, tuple[int, ...]]:
    """Who gets which partition; all of them have exactly one of the members, of which there must be one.

    With "shared" no member has more than one partition more than another, and as few as possible move away from who
    had them in `previous`. With "failover" whoever is active stays so, and is followed by the first by name.
    The other kinds have nothing to be spread.
    """
    names, wanted = sorted(set(members)), sorted(set(partitions))
    kept = _kept(names, wanted, previous)
    if kind == "failover":
        active = min(names, key=lambda name: (-len(kept[name]), name))
        return {name: tuple(wanted) if name == active else () for name in names}
    share, larger = divmod(len(wanted), len(names))
    by_kept = sorted(names, key=lambda name: (-len(kept[name]), name))
    quota = {name: share + (place < larger) for place, name in enumerate(by_kept)}
    held = {name: kept[name][: quota[name]] for name in names}
    homeless = iter(sorted(set(wanted).difference(*held.values())))
    for name in names:
        held[name] += [next(homeless) for _ in range(quota[name] - len(held[name]))]
    return {name: tuple(sorted(held[name])) for name in names}


def fits(holders: Holders, members: Collection[str], partitions: Collection[int]) -> bool:
    """Whether these members hold these partitions, all of them and nothing else."""
    held = [partition for those in holders.values() for partition in those]
    return set(holders) == set(members) and len(held) == len(partitions) and set(held) == set(partitions)


def _kept(names: Iterable[str], wanted: Iterable[int], previous: Holders) -> dict[str, list[int]]:
    """What each member could keep."""
    free = set(wanted)
    kept: dict[str, list[int]] = {}
    for name in names:
        kept[name] = sorted(free.intersection(previous.get(name, ())))
        free.difference_update(kept[name])
    return kept
