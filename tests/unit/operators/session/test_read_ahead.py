"""Of sessions whose rows lie on disk, those that end next are in memory when they end, however long sessions are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.accumulators import Output
from tailrace.operators.aggregate.ingest.rows import RowIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.resources import Resources
from tailrace.operators.session.holistic import SessionRows
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.append.list_instance import Stats
from tailrace.state.tuning import Tuning
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP, Field

GAP = 1_000_000
EPOCHS_A_GAP = 100
SHARDS = 4
MEMORY = 80_000
OPEN = 600
"""Sessions that are open at any time."""

SPEC = AggregateSpec(
    name="sessions",
    keys=(Field("k", BIGINT),),
    accumulators=(),
    outputs=(Output("middle", "quantile", (), DOUBLE, ("v",), (0.5,)),),
    window_name="session_window",
    window_position=1,
    time_column=Field("ts", TIMESTAMP),
    emit_changed=False,
    watermarked=True,
    ansi=True,
    shards=SHARDS,
    rows=(Field("ts", TIMESTAMP), Field("v", BIGINT)),
    window=SessionWindowSpec(Micros(GAP)),
)


@dataclass(frozen=True)
class Stream:
    """Rows by time. A session has a key of its own."""

    times: np.ndarray
    keys: np.ndarray
    ends: np.ndarray  # of sessions

    def batch(self, first: int, end: int) -> pa.RecordBatch:
        """The rows from one time to another."""
        low, high = np.searchsorted(self.times, [first, end])
        times = pa.array(self.times[low:high]).cast(pa.timestamp("us", tz="UTC"))
        keys = pa.array(self.keys[low:high])
        return pa.RecordBatch.from_pydict({"k": keys, "ts": times, "v": keys})


def stream(length: int) -> Stream:
    """Sessions of about this length with rows a quarter of the gap or less apart; as many begin as end."""
    rng = np.random.default_rng(7)
    first = -(length + GAP)
    count = OPEN * (GAP - first) // (length + GAP)
    starts = rng.integers(first, GAP, count)
    lengths = rng.integers(length - length // 10, length + length // 10, count)
    rows = np.maximum(4, 4 * lengths // GAP) + 1
    sessions = np.repeat(np.arange(count), rows)
    number = np.arange(len(sessions)) - np.repeat(np.cumsum(rows) - rows, rows)
    times = starts[sessions] + number * lengths[sessions] // (rows[sessions] - 1)
    order = np.argsort(times, kind="stable")
    return Stream(times[order], sessions[order], starts + lengths + GAP)


def played(folder: Path, times_the_gap: float, read_batch_ratio: float) -> Stats:
    """A gap of time, in short epochs. The rows before are there already, nearly all of them on disk."""
    rows = stream(int(times_the_gap * GAP))
    resources = Resources(MEMORY, str(folder), Tuning(read_batch_ratio=read_batch_ratio), threads=1)
    operator = SessionRows(SPEC, range(SHARDS), resources)
    step = GAP // EPOCHS_A_GAP
    edges = [*np.linspace(rows.times[0], 0, 12).astype(int).tolist(), *range(step, GAP, step)]
    given = 0
    first = Stats()
    for epoch, (before, now) in enumerate(pairwise(edges)):
        operator.apply(epoch, [RowIngest(SPEC, MIN_MICROS).frame([rows.batch(before, now)])])
        given += sum(map(len, operator.advance(epoch, before, now)))
        operator.forget(epoch)
        if now == step:  # by then something was missed, so that reading ahead has begun
            first = operator.list_stats()
    assert given == np.count_nonzero(rows.ends <= edges[-1])
    stats = operator.list_stats()
    operator.close()
    return replace(stats, hits=stats.hits - first.hits, misses=stats.misses - first.misses)


@pytest.mark.parametrize("times_the_gap", [0.05, 0.5, 2, 20])
def test_sessions_of_any_length_are_read_before_they_end(tmp_path: Path, times_the_gap: float) -> None:
    seeing, blind = (played(tmp_path, times_the_gap, ratio) for ratio in (0.02, 0.0))
    assert blind.hits == blind.lists_prefetched == 0
    assert blind.misses > 300, "most sessions lay on disk"
    assert seeing.hits + seeing.misses == pytest.approx(blind.misses, rel=0.1)
    assert seeing.hits >= 0.95 * (seeing.hits + seeing.misses), seeing
