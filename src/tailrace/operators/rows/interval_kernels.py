"""The kernel of ``intervals``."""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import kernel


@kernel
def number_sessions(order, keys, starts, ends, firsts, latest):
    """Of intervals by key and start, where each session begins in ``order``, and its end. Gives how many there are."""
    count = np.int64(0)
    key, end = np.int64(-1), np.int64(0)
    for place in range(order.shape[0]):
        at = order[place]
        if keys[at] != key or starts[at] > end:
            key, end = keys[at], ends[at]
            firsts[count] = place
            count += 1
        elif ends[at] > end:
            end = ends[at]
        latest[count - 1] = end
    firsts[count] = order.shape[0]
    return count
