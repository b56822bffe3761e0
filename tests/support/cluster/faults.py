"""What goes wrong on a cluster of hosts: processes that are killed, and links that are bad for some seconds.

Whom a fault hits and how long it lasts is drawn. A link has one fault at a time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psutil

from support.cluster.hosts import Hosts
from support.cluster.network import Host
from support.processes import kill

KILLS = ("executor", "server", "driver")
LINKS = ("cut", "delay", "loss")
LASTS_S = (3.0, 12.0)
_DELAYS_MS = (2, 5, 20, 50)
_LOSSES_PERCENT = (1, 5, 20)


class Faults:
    """``kill_driver``: kills the driver of the moment; false where there is none."""

    def __init__(self, hosts: Hosts, rng: random.Random, kill_driver: Callable[[], bool]) -> None:
        self._hosts = hosts
        self._rng = rng
        self._kill_driver = kill_driver
        self._bad: dict[str, float] = {}  # hosts with a bad link, and when it is repaired
        self.counts = Counter(dict.fromkeys((*KILLS, *LINKS), 0))

    def cause(self, kind: str) -> str | None:
        """One fault of that kind, in words. None where there is nothing that it could hit at this moment."""
        what = self._kill(kind) if kind in KILLS else self._spoil_link(kind)
        if what is not None:
            self.counts[kind] += 1
        return what

    def repair_due(self) -> None:
        """Repair the links that were bad for long enough. To be called often."""
        for name in [name for name, until in self._bad.items() if time.monotonic() >= until]:
            del self._bad[name]
            self._hosts.network.hosts[name].repair()

    def repair_all(self) -> None:
        self._bad = dict.fromkeys(self._bad, 0.0)
        self.repair_due()

    def _kill(self, kind: str) -> str | None:
        if kind == "driver":
            return "driver killed" if self._kill_driver() else None
        victim = self._one(self._hosts.executors() if kind == "executor" else self._hosts.servers())
        return f"{kind} {victim.pid} killed" if victim is not None and kill(victim.pid) else None

    def _one(self, processes: Sequence[psutil.Process]) -> psutil.Process | None:
        return self._rng.choice(sorted(processes, key=lambda process: process.pid)) if processes else None

    def _spoil_link(self, kind: str) -> str | None:
        good = [host for name, host in self._hosts.network.hosts.items() if name not in self._bad]
        if not good:
            return None
        host, lasts_s = self._rng.choice(good), self._rng.uniform(*LASTS_S)
        how = self._spoil(host, kind)
        self._bad[host.name] = time.monotonic() + lasts_s
        return f"link of {host.name} {how} for {lasts_s:.1f} s"

    def _spoil(self, host: Host, kind: str) -> str:
        if kind == "cut":
            host.cut()
            return "cut"
        if kind == "delay":
            delay_ms = self._rng.choice(_DELAYS_MS)
            host.delay(delay_ms)
            return f"delayed by {delay_ms} ms"
        percent = self._rng.choice(_LOSSES_PERCENT)
        host.lose(percent)
        return f"without {percent} % of its packets"
