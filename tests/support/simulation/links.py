"""The network between the driver and the machines of servers: links that are cut for a while, calls that fail once.

A link is cut in one direction or both. Nobody hears anything of what is sent meanwhile until the link is whole again:
then it arrives, long after its sender may have given it up, or its connection turns out to be broken. A call that fails
once does so before it has reached the server, or after it has worked: its caller cannot tell which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.simulation.scheduler import Scheduler

if TYPE_CHECKING:
    from support.simulation.server import Server

CALLS = ("open", "move", "stage", "prepare", "run", "commit", "upload", "compact", "forget", "ping")
"""Every call of driver and tasks, by its name."""
_LOOK_S = 0.5
CUT_S = (1.0, 8.0, 30.0)


@dataclass
class _Cut:
    machine: int
    to_server: bool
    to_driver: bool
    ends: float
    held: list[Callable[[], None]] = field(default_factory=list)  # what becomes at its end of what was sent meanwhile


class Links:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._cuts: list[_Cut] = []
        self._failing: dict[str, bool] = {}  # the call that fails next, and whether it has worked by then
        self._delayed: dict[str, float] = {}  # the calls that are next on their way for a while: for how long

    def cut(self, machines: int) -> list[int]:
        """Cut the link to one of the machines, or all: which."""
        draw = self._scheduler.random
        chosen = list(range(machines)) if draw.random() < 0.3 else [draw.randrange(machines)]
        to_server, to_driver = draw.choice(((True, True), (True, True), (True, False), (False, True)))
        seconds = draw.choice(CUT_S)
        for machine in chosen:
            cut = _Cut(machine, to_server, to_driver, self._scheduler.now + seconds)
            self._cuts.append(cut)
            self._scheduler.later(seconds, lambda cut=cut: self._mend(cut))
        return chosen

    def _mend(self, cut: _Cut) -> None:
        self._cuts.remove(cut)
        for end in cut.held:
            end()

    def fail_one(self) -> None:
        """The next call of some kind fails."""
        draw = self._scheduler.random
        self._failing[draw.choice(CALLS)] = draw.random() < 0.5

    def fails(self, call: str) -> bool | None:
        """Whether this call fails: False before it has worked, True after that; None: not at all."""
        return self._failing.pop(call, None)

    def delay_one(self, call: str, seconds: float) -> None:
        """The next such call is on its way for so long."""
        self._delayed[call] = seconds

    def delay_s(self, call: str) -> float:
        return self._delayed.pop(call, 0.0)

    def is_whole(self, machine: int) -> bool:
        return not any(cut.machine == machine for cut in self._cuts)

    def send(self, server: Server, arrives: Callable[[], None], breaks: Callable[[], None]) -> bool:
        """Bring a message to the server, or break its connection. Whether it is there now."""
        cuts = [cut for cut in self._cuts if cut.machine == server.machine and cut.to_server]
        if not cuts:
            arrives()
            return True
        cuts[-1].held.append(arrives if self._scheduler.random.random() < 0.5 else breaks)
        return False

    def wait_for_answer(self, server: Server, until: float) -> None:
        """An answer is sent now: return when it is here. Raises ``TimeoutError`` where that is too late."""
        while any(cut.machine == server.machine and cut.to_driver for cut in self._cuts):
            if self._scheduler.now >= until:
                raise TimeoutError
            self._scheduler.sleep(min(_LOOK_S, until - self._scheduler.now))
