"""Run the cache's kernels once, so that no epoch waits for a compiler."""

from __future__ import annotations

import numpy as np

from tailrace.env.files.point_file import warm_up_point_file
from tailrace.state.cache import id_kernels as ik
from tailrace.state.cache.frequency_sketch import FrequencySketch
from tailrace.state.cache.id_table import IdTable
from tailrace.state.cache.policies import Clock


def warm_up_cache() -> None:
    table = IdTable()
    ids = np.arange(table.room + 1, dtype=np.int64)  # one more than there is room for, so that it grows
    table.drop(table.add(ids)[:1])
    table.find(ids)
    table.compact()
    ik.count_waiting(table.alive, table.alive, table.ids, 0, table.end)
    sketch = FrequencySketch()
    sketch.add(ids)
    sketch.counts(ids)
    warm_up_point_file()
    Clock().victims(np.zeros(2, np.int64), np.ones(2, bool), 1)
