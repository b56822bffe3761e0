"""What a trace costs in each kind of store: bytes moved, and places looked up. The ground on which stores are advised.

- Read-modify-write: a get reads the value, a put writes it, a merge reads the value and writes it with what is added.
- Append: put and merge write what is added and nothing else, a get reads all that was added since the last delete.
  Unaligned, each get is a look-up. Aligned, keys that are read for the last time one after the other are one.

A *trigger* is a get whose key is deleted next: the last read of a window. Triggers are together where several follow
each other with nothing but the deletes between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.lab.gadget.analysis import kernels
from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.traces.trace import Operation, Trace


@dataclass(frozen=True)
class StoreCosts:
    rmw_bytes: int
    append_bytes: int
    rmw_lookups: int
    unaligned_lookups: int
    aligned_lookups: int
    triggers: int
    triggers_together: int
    """Those that have another one right before or behind them."""
    live_bytes_max: int
    """The most that all values took at one time, without keys."""

    @property
    def aligned(self) -> bool:
        return 2 * self.triggers_together > self.triggers


def store_costs(trace: Trace) -> StoreCosts:
    keys, count = numbered(trace.keys)
    operations, sizes = trace.operations, trace.value_sizes.astype(np.int64)
    held, listed = np.empty(len(trace), np.int64), np.empty(len(trace), np.int64)
    most = kernels.held_bytes(keys, operations, sizes, np.zeros(max(1, count), np.int64), held)
    kernels.listed_bytes(keys, operations, sizes, np.zeros(max(1, count), np.int64), listed)
    gets, merges = operations == Operation.GET, operations == Operation.MERGE
    written = int(sizes.sum())
    together, bursts, triggers = _triggers(keys, operations)
    return StoreCosts(
        # A merge reads what is there and writes it again, with what is added.
        rmw_bytes=int(held[gets].sum() + 2 * held[merges].sum()) + written,
        append_bytes=int(listed[gets].sum()) + written,
        rmw_lookups=int((gets | merges).sum()),
        unaligned_lookups=int(gets.sum()),
        aligned_lookups=int(gets.sum()) - triggers + bursts,
        triggers=triggers,
        triggers_together=together,
        live_bytes_max=int(most),
    )


def _triggers(keys: np.ndarray, operations: np.ndarray) -> tuple[int, int, int]:
    """Triggers with a neighbour, runs of triggers, triggers."""
    if len(keys) < 2:
        return 0, 0, 0
    pairs = (operations[:-1] == Operation.GET) & (operations[1:] == Operation.DELETE) & (keys[:-1] == keys[1:])
    at = np.flatnonzero(pairs)
    if not len(at):
        return 0, 0, 0
    follows = np.concatenate([[False], np.diff(at) == 2])  # with its delete, a trigger is two accesses
    followed = np.concatenate([follows[1:], [False]])
    return int((follows | followed).sum()), int((~follows).sum()), len(at)
