"""Working set: how many keys are active.

A key is active from its first access on, until it is deleted; an access after that makes it so again.
"""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.traces.trace import Operation, Trace

EVERY = 100
"""Operations between two samples."""


def active_keys(trace: Trace) -> np.ndarray:
    """After each access, how many keys are active."""
    order = np.argsort(trace.keys, kind="stable")
    keys, deletes = trace.keys[order], trace.operations[order] == Operation.DELETE
    was_active = np.zeros(len(keys), np.int64)
    was_active[1:] = (keys[1:] == keys[:-1]) & ~deletes[:-1]
    change = np.empty(len(keys), np.int64)
    change[order] = ~deletes - was_active
    return change.cumsum()


def working_set(trace: Trace, every: int = EVERY) -> np.ndarray:
    """The active keys after every so many operations."""
    return active_keys(trace)[every - 1 :: every]
