"""Spilled records by themselves: keys without strings, in segments that a test makes of them."""

from __future__ import annotations

import numpy as np

from tailrace.state.layout import HASH, PANE, VALID, Merge, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.state.segments.spilled_records import SpilledRecords
from tailrace.state.tuning import Tuning
from tailrace.types import BIGINT, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT)], ansi=False)
KEY, SUM = LAYOUT.keys[0].word, LAYOUT.accumulators[0].word
NO_HORIZON = -(2**63)


def records(keys: np.ndarray, panes: int = 1) -> Rows:
    """Rows of these keys, in panes by turns; the sum is the key."""
    words = np.zeros((len(keys), LAYOUT.words), np.int64)
    words[:, HASH] = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    words[:, PANE] = keys % panes
    words[:, VALID] = 3
    words[:, KEY] = words[:, SUM] = keys
    return Rows(words, np.empty(0, np.uint8))


class SpilledKeys:
    """Spilled records whose shards are ``key // panes % shards``."""

    def __init__(self, folder: str, shards: int = 2, panes: int = 1, max_space_amplification: float = 2.0) -> None:
        self.spilled = SpilledRecords(LAYOUT, folder, tuning=Tuning(max_space_amplification=max_space_amplification))
        self.shards, self.panes = shards, panes

    def by_shard(self, keys: np.ndarray) -> tuple[Rows, np.ndarray]:
        shards = keys // self.panes % self.shards
        order = np.argsort(shards, kind="stable")
        return records(keys[order], self.panes), np.searchsorted(shards[order], np.arange(self.shards + 1))

    def put(self, keys: np.ndarray) -> None:
        """As one segment."""
        rows, bounds = self.by_shard(keys)
        spans = [(shard, int(bounds[shard]), int(bounds[shard + 1])) for shard in range(self.shards)]
        parts = ((shard, Rows(rows.words[lo:hi], rows.heap)) for shard, lo, hi in spans if lo < hi)
        self.spilled.put(parts, len(keys))
        self.spilled.write_buffer()
        self.spilled.wait_for_writes()

    def take(self, epoch: int, keys: np.ndarray) -> int:
        """How many of them were there."""
        return len(self.spilled.take_all(epoch, *self.by_shard(keys), NO_HORIZON)[0])

    def read(self) -> np.ndarray:
        """The keys of all records, read pane by pane."""
        panes = np.arange(self.panes, dtype=np.int64)
        parts = [self.spilled.rows_of(shard, panes).words[:, SUM] for shard in range(self.shards)]
        return np.sort(np.concatenate(parts))

    def found(self, keys: np.ndarray) -> np.ndarray:
        """Those of the keys that have a record, each looked for."""
        rows = self.spilled.lookup_all(*self.by_shard(keys), NO_HORIZON, keep=True).rows
        return np.sort(rows.words[:, SUM])
