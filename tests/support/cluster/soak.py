"""Rounds of queries on a cluster of hosts with one fault after the other, and the numbers at the end.

When a fault comes is the business of a schedule: by the clock, for hours, or by how far the queries are, for a short
test that hits them in the middle however slow the machine is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pyspark.sql import SparkSession

from support.cluster.faults import KILLS, Faults
from support.cluster.hosts import Hosts
from support.cluster.rounds import Round, Verdict

WEDGED_S = 300.0
"""Queries of which none gets on for so long are taken for wedged."""
EVERY_S = (8.0, 16.0)
_WEIGHTS = {"executor": 4, "server": 5, "driver": 2, "cut": 4, "delay": 2, "loss": 2}
_LOOK_S = 0.2


class Schedule(Protocol):
    def due(self, progress: float) -> str | None:
        """The kind of fault that should come now; the same one until it came."""

    def came(self) -> None: ...


class ByClock:
    """A fault every 8 to 16 s, for so many seconds."""

    def __init__(self, rng: random.Random, seconds: float) -> None:
        self._rng = rng
        self._ends = time.monotonic() + seconds
        self.came()

    @property
    def over(self) -> bool:
        return time.monotonic() > self._ends

    def due(self, progress: float) -> str | None:
        return self._kind if self._next <= time.monotonic() < self._ends else None

    def came(self) -> None:
        self._next = time.monotonic() + self._rng.uniform(*EVERY_S)
        self._kind = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]


class ByProgress:
    """Given kinds of faults, spread over the epochs of a round."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._left = list(kinds)
        self._step = 1 / (len(kinds) + 1)
        self._next = self._step

    def due(self, progress: float) -> str | None:
        return self._left[0] if self._left and progress >= self._next else None

    def came(self) -> None:
        self._left.pop(0)
        self._next += self._step


class Soak:
    """``spark``: a session of this process, for the oracles. ``say`` gets a line for everything that happens."""

    def __init__(self, hosts: Hosts, spark: SparkSession, rng: random.Random, say: Callable[[str], None]) -> None:
        self._hosts = hosts
        self._spark = spark
        self._rng = rng
        self._began = time.monotonic()
        self._say: Callable[[str], None] = lambda line: say(f"{time.monotonic() - self._began:6.1f} s  {line}")
        self._round: Round | None = None
        self._faults = Faults(hosts, rng, lambda: self._round is not None and self._round.kill_driver())
        self._rounds = 0
        self._ended_by_itself = 0
        self._total = Verdict()

    def play(self, epochs: int, schedule: Schedule) -> None:
        """One round, to the end of its input and the verdict on it."""
        self._round = round_ = Round(self._hosts, self._rng.randrange(2**32), epochs, self._say)
        self._say(str(round_))
        try:
            self._run(round_, schedule)
        finally:
            round_.stop()
            self._faults.repair_all()
            self._ended_by_itself += round_.ended_by_itself
        self._rounds += 1
        verdict = round_.verify(self._spark)
        self._total += verdict
        self._say(f"{verdict.epochs} epochs, {verdict.rows} rows, {'; '.join(verdict.faults) or 'all of them right'}")
        if not verdict.faults:
            round_.remove()

    def _run(self, round_: Round, schedule: Schedule) -> None:
        seen, seen_at = round_.progress, time.monotonic()
        while not round_.tend():
            self._faults.repair_due()
            progress = round_.progress
            if progress != seen:
                seen, seen_at = progress, time.monotonic()
            assert time.monotonic() < seen_at + WEDGED_S, (
                f"no query got on for {WEDGED_S} s at {progress:.0%}: {round_}"
            )
            kind = schedule.due(progress)
            if kind is not None and (what := self._faults.cause(kind)) is not None:
                self._say(f"{progress:4.0%}  {what}")
                schedule.came()
            time.sleep(_LOOK_S)

    @property
    def exact(self) -> bool:
        """No row is lost, doubled or wrong, and no driver ended that nobody had killed."""
        return not self._total.faults and not self._ended_by_itself

    def numbers(self) -> dict[str, Any]:
        counts = self._faults.counts
        return {
            "seconds": round(time.monotonic() - self._began),
            "rounds": self._rounds,
            "kills": {kind: counts[kind] for kind in KILLS},
            "cuts": counts["cut"],
            "delays": counts["delay"],
            "losses": counts["loss"],
            "netem": self._hosts.network.netem,
            "epochs": self._total.epochs,
            "rows": self._total.rows,
            "lost": self._total.lost,
            "doubled": self._total.doubled,
            "wrong": len(self._total.faults),
            "ended_by_itself": self._ended_by_itself,
        }
