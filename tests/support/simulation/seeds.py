"""Running seeds, and naming the one that fails. ``python -m support.simulation.seeds SEED ...`` prints outcomes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from support.simulation.scheduler import Violation
from support.simulation.world import Outcome, World, simulated

LINES_SHOWN = 60
_COLLECT_EVERY = 200
"""Seeds between two collections of garbage: doing it all the time takes a tenth of the time."""


class Failed(AssertionError):
    """A seed breaks an invariant."""


@dataclass(frozen=True)
class Told:
    seeds: int
    steps: int
    starts: int
    faults: int


def run_seed(seed: int) -> Outcome:
    """Only inside ``simulated``."""
    world = World(seed)
    try:
        return world.run()
    except Violation as violation:
        lines = [f"{at:9.2f}  {who:12} {task:20} {what}" for at, who, task, what in world.scheduler.lines]
        shown = "\n".join(lines[-LINES_SHOWN:])
        raise Failed(f"{violation}\nTAILRACE_SIM_SEED={seed} replays it. Its last steps:\n{shown}") from None


def run_seeds(seeds: Iterable[int]) -> Told:
    count = steps = starts = faults = 0
    collecting = gc.isenabled()
    gc.disable()
    try:
        with simulated():
            for seed in seeds:
                outcome = run_seed(seed)
                count += 1
                steps, starts, faults = steps + outcome.steps, starts + outcome.starts, faults + len(outcome.faults)
                if count % _COLLECT_EVERY == 0:
                    gc.collect()
    finally:
        if collecting:
            gc.enable()
    return Told(count, steps, starts, faults)


if __name__ == "__main__":
    with simulated():
        for given in sys.argv[1:]:
            print(run_seed(int(given)))
