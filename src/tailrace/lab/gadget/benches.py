"""The benches of ``tailrace gadget``, for readers of their records."""

from __future__ import annotations

from tailrace.lab.registry import Bench, register

register(
    Bench(
        "gadget",
        "What streaming operators ask of their state, on state stores by themselves. Stores are the engines; a series "
        "has one value a workload, the milliseconds of a million accesses in micro-batches.",
        (),
    ),
    Bench(
        "gadget-replay",
        "One trace of state accesses on one store, or several at the same time.",
        (),
    ),
    Bench(
        "gadget-analyze",
        "What traces of state accesses are like, as Gadget's paper looks at them: composition, amplification, distance "
        "from the input, locality in time and space, lives of keys, working sets.",
        (),
    ),
)
