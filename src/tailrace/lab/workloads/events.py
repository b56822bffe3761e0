"""Deterministic events as Parquet files: every engine reads the very same files.

One file is one micro-batch (``maxFilesPerTrigger=1``). A file is made under a temporary name and renamed, so a file
that is seen is whole. What it holds depends on (seed, number of the file) alone, never on the files made before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KEYED_SCHEMA = "key bigint, value bigint"
BID_SCHEMA = "auction bigint, bidder bigint, price bigint, ts timestamp"

_VALUE_MAX = 1_000_000
_MICROS = 1_000_000


def write_batch(table: pa.Table, folder: Path, name: str, pieces: int) -> Path:
    """Writes one file of ``pieces`` row groups of equal size: what lets Spark give each core a share of it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.parquet"
    hidden = folder / f".{name}.making"
    pq.write_table(table, hidden, row_group_size=max(1, -(-table.num_rows // pieces)), compression="snappy")
    hidden.rename(path)
    return path


@dataclass(frozen=True)
class KeyedEvents:
    """(key, value) rows over a fixed number of keys; ``prefill`` names each key exactly once."""

    keys: int
    rows: int
    seed: int

    @property
    def prefill_batches(self) -> int:
        return -(-self.keys // self.rows)

    def prefill(self, number: int) -> pa.Table:
        order = np.random.default_rng((self.seed, 0)).permutation(self.keys)
        return self._table(order[number * self.rows : (number + 1) * self.rows], (self.seed, 1, number))

    def batch(self, number: int) -> pa.Table:
        rng = np.random.default_rng((self.seed, 2, number))
        return self._table(rng.integers(0, self.keys, self.rows), (self.seed, 3, number))

    def every_key(self) -> pa.Table:
        """One row for each key: in update mode it makes an engine output every key that it has."""
        order = np.random.default_rng((self.seed, 4)).permutation(self.keys)
        return self._table(order, (self.seed, 5))

    @staticmethod
    def _table(keys: np.ndarray, seed: tuple[int, ...]) -> pa.Table:
        values = np.random.default_rng(seed).integers(0, _VALUE_MAX, len(keys))
        return pa.table({"key": keys.astype(np.int64), "value": values})


def keyed_answer(files: list[Path]) -> pa.Table:
    """What sum, count and max per key must be after these files, computed without any of the engines."""
    totals = None
    for path in files:
        part = pq.read_table(path).group_by("key").aggregate([("value", "sum"), ("value", "count"), ("value", "max")])
        part = part.rename_columns({"value_sum": "total", "value_count": "n", "value_max": "top"})
        if totals is not None:
            both = pa.concat_tables([totals, part])
            part = both.group_by("key").aggregate([("total", "sum"), ("n", "sum"), ("top", "max")])
            part = part.rename_columns({"total_sum": "total", "n_sum": "n", "top_max": "top"})
        totals = part.select(["key", "total", "n", "top"])
    assert totals is not None, "no files were given"
    return totals.sort_by("key")


@dataclass(frozen=True)
class Bids:
    """An auction house's bids: out of order by up to ``jitter_s``; ``late_share`` of the rows come hopelessly late.

    A hopeless row is older than every window that any engine still keeps, whichever rule it judges lateness by, so all
    engines must drop it. All other rows are within the allowed lateness, so all must keep them.
    """

    rows: int
    auctions: int
    seconds_a_batch: int
    jitter_s: int
    late_share: float
    seed: int

    start_s: int = 1_767_225_600  # 2026-01-01 00:00:00 UTC
    late_by_s: int = 3_600

    def batch(self, number: int) -> pa.Table:
        rng = np.random.default_rng((self.seed, number))
        span = self.seconds_a_batch * _MICROS
        at = (self.start_s * _MICROS + number * span) + np.sort(rng.integers(0, span, self.rows))
        at -= rng.integers(0, self.jitter_s * _MICROS, self.rows)
        if number >= 3:  # by then every engine has a watermark that an hour-old row is behind
            late = rng.random(self.rows) < self.late_share
            at[late] -= self.late_by_s * _MICROS
        # Popular auctions get most bids: the square of a uniform number leans to the small ones.
        auction = (rng.random(self.rows) ** 2 * self.auctions).astype(np.int64)
        return pa.table(
            {
                "auction": auction,
                "bidder": rng.integers(0, 1_000_000, self.rows),
                "price": rng.integers(100, 1_000_000, self.rows),
                "ts": pa.array(at, pa.timestamp("us", tz="UTC")),
            }
        )

    def late_rows(self, table: pa.Table) -> int:
        """How many of a batch's rows are the hopelessly late ones."""
        oldest = (self.start_s - self.late_by_s // 2) * _MICROS
        return int(pc.sum(pc.less(table["ts"].cast(pa.int64()), oldest)).as_py() or 0)
