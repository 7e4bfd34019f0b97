"""The network between programs: wires that keep the order, delay, stand still while cut, and break.

What is under way on a wire when it breaks may still arrive: the kernel of the receiving machine may have it already.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from delivery.errors import HostUnreachable
from tests.simulation.kernel import Call, Kernel
from tests.simulation.machine import Machine

Address = tuple[str, int]


class Wire:
    """One connection. `near` opened it; each side hears once of its end, by `on_end`."""

    def __init__(self, network: Network, near: Machine, far: Machine) -> None:
        self.near, self.far = near, far
        self.on_end: dict[Machine, Call] = {}
        self._network, self._kernel = network, network.kernel
        self._open = {near: True, far: True}
        self._arrives = {near: 0.0, far: 0.0}
        self._stalled: list[Call] = []
        self._lost: set[Machine] = set()
        """To whom something got lost with the wire: nothing that was behind it arrives either."""
        near.on_crash.append(self.reset)
        far.on_crash.append(self.reset)

    def is_open(self, side: Machine) -> bool:
        """Whether a side believes that the wire is good."""
        return self._open[side]

    def send(self, sender: Machine, arrive: Call) -> None:
        """Have `arrive` called on the other side, after all that was sent before."""
        receiver = self.far if sender is self.near else self.near
        sender.act(partial(self._leave, sender, receiver, arrive))

    def reset(self) -> None:
        """Break it: both sides hear of it, each in its time."""
        self._stalled.clear()
        for side in (self.near, self.far):
            side.act_later(self._kernel.between(0, 0.02), partial(self.close, side))

    def close(self, side: Machine) -> None:
        """One side has had enough of it, and the other one hears of that."""
        if not self._open[side]:
            return
        self._open[side] = False
        other = self.far if side is self.near else self.near
        if self._open[other]:
            self._travel(side, other, partial(self._hear_end, side, other))
        tell = self.on_end.pop(side, None)
        if tell is not None:
            tell()
        if not any(self._open.values()):
            self._network.forget(self)

    def heal(self) -> None:
        """What the cut held back goes on."""
        stalled, self._stalled = self._stalled, []
        for call in stalled:
            call()

    def _leave(self, sender: Machine, receiver: Machine, arrive: Call) -> None:
        if self._open[sender]:
            self._travel(sender, receiver, partial(self._through, sender, receiver, arrive))

    def _travel(self, sender: Machine, receiver: Machine, arrive: Call) -> None:
        at = max(self._arrives[receiver], self._kernel.now + self._network.delay())
        self._arrives[receiver] = at
        self._kernel.later(at - self._kernel.now, arrive)

    def _hear_end(self, sender: Machine, receiver: Machine) -> None:
        if self._network.is_cut(sender.name, receiver.name):
            self._stalled.append(partial(self._hear_end, sender, receiver))
        else:
            receiver.act(partial(self.close, receiver))

    def _through(self, sender: Machine, receiver: Machine, arrive: Call) -> None:
        if self._network.is_cut(sender.name, receiver.name):
            self._stalled.append(partial(self._through, sender, receiver, arrive))
        elif self._open[sender] or (receiver not in self._lost and self._kernel.chance(0.5)):
            receiver.act(lambda: self._open[receiver] and arrive())
        else:
            self._lost.add(receiver)


class Network:
    """Who listens where, and which wires there are."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.listening: dict[Address, tuple[Machine, Any]] = {}
        """By address the machine and what it does with those who connect."""
        self._wires: dict[Wire, None] = {}
        self._cuts: set[frozenset[str]] = set()

    def listen(self, address: Address, machine: Machine, service: object) -> None:
        """Take connections, until the machine crashes."""
        self.listening[address] = (machine, service)
        machine.on_crash.append(lambda: self.listening.pop(address, None))

    def connect(self, near: Machine, address: Address) -> tuple[Wire, Any]:
        """A wire to who listens, and its service. Raises HostUnreachable."""
        far, service = self.listening.get(address, (None, None))
        if far is None or self.is_cut(near.name, far.name):
            raise HostUnreachable(f"nobody answers at {address}")
        wire = Wire(self, near, far)
        self._wires[wire] = None
        return wire, service

    def wires(self) -> list[Wire]:
        """All that are open, on one side at least."""
        return list(self._wires)

    def forget(self, wire: Wire) -> None:
        """It is closed on both sides."""
        self._wires.pop(wire, None)

    def delay(self) -> float:
        """From one machine to another."""
        return self.kernel.between(0.0002, 0.003) if not self.kernel.chance(0.02) else self.kernel.between(0, 0.3)

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between two machines."""
        self._cuts.add(frozenset((one, other)))

    def heal(self) -> None:
        """Everything passes."""
        self._cuts.clear()
        for wire in self.wires():
            wire.heal()

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing passes between them."""
        return bool(self._cuts) and frozenset((one, other)) in self._cuts
