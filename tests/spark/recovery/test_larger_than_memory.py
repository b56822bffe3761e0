"""A query whose state is more than ten times its memory: the oracle's rows, within the memory it was given."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from support.processes import session_servers
from support.queries.simple import ROLLING, SCHEMA, SECOND, SUMS, Scripted
from tailrace.testing import Question, Windows

TUMBLING = Question(("k",), SUMS, Windows(1000 * SECOND, 1000 * SECOND), "ts", 5 * SECOND)
SLIDING = Question(("k",), SUMS, Windows(40 * SECOND, 20 * SECOND), "ts", 5 * SECOND, "update")
BESIDE_BYTES = 96 << 20
"""What a server may take beside its memory, beyond what it took after the first epoch: the changes of two epochs that
can be undone, their frames, delta and output as Arrow, the compaction of checkpoints in the background, and what the
allocators of Python and Arrow keep of all that."""


def batches(keys_each: int, epochs: int, seconds: int) -> tuple[pa.Table, ...]:
    """Most keys are new, one in ten is seen again, from all epochs before."""
    made = []
    for epoch in range(epochs):
        fresh = np.arange(epoch * keys_each, (epoch + 1) * keys_each)
        again = (fresh * 7919) % ((epoch + 1) * keys_each)
        keys = np.where(fresh % 10 == 0, again, fresh)
        times = (1000 + seconds * epoch + fresh % 10) * SECOND
        made.append(pa.table([keys, times, fresh - 40], names=SCHEMA.names).cast(SCHEMA))
    return tuple(made)


class Watch:
    """The most memory that the session's server was seen with, from the first epoch's end on."""

    def __init__(self) -> None:
        self.first = self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def begin(self) -> None:
        if not self.first:
            (server,) = session_servers()
            self.server = server
            self.first = self.most = server.memory_info().rss
            self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            try:
                self.most = max(self.most, self.server.memory_info().rss)
            except psutil.Error:
                return

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize(
    ("memory", "keys_each", "epochs"),
    [(1 << 20, 24_000, 10), pytest.param(8 << 20, 150_000, 12, marks=pytest.mark.long)],
)
def test_state_of_ten_times_the_memory(
    spark: SparkSession, tmp_path: Path, memory: int, keys_each: int, epochs: int
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(keys_each, epochs, 1))
    watch = Watch()
    save = query.output.save

    def watched(batch: DataFrame, epoch: int) -> None:
        watch.begin()
        save(batch, epoch)

    query.output.save = watched  # type: ignore[method-assign]
    try:
        query.run(memory=str(memory), shards="16")
    finally:
        watch.end()
    check_totals(query)
    last = query.output.progress[-1]
    held, beyond = last.state_bytes, last.state_disk_bytes
    print(f"server {watch.first >> 20} MB, later at most {watch.most >> 20} MB; state {held >> 20} + {beyond >> 20} MB")
    assert held + beyond > 10 * memory
    assert last["stateOperators"][0]["diskUsedBytes"] == beyond
    assert watch.most - watch.first < memory + BESIDE_BYTES


def check_totals(query: Scripted) -> None:
    """Arrow's own grouping is the oracle: as of each epoch, the keys that it touched."""
    seen = None
    for epoch, fed in enumerate(query.fed):
        seen = fed if seen is None else pa.concat_tables([seen, fed])
        totals = seen.group_by("k").aggregate([("v", "sum"), ("v", "count")])
        touched = totals.filter(pc.is_in(totals["k"], pc.unique(fed["k"]))).sort_by("k")
        got = query.output.tables[epoch].sort_by("k")
        for name, want in (("k", "k"), ("total", "v_sum"), ("n", "v_count")):
            assert got[name].combine_chunks().equals(touched[want].combine_chunks()), f"epoch {epoch}, {name}"


@pytest.mark.parametrize("question", [TUMBLING, SLIDING], ids=["tumbling, append", "sliding, update"])
def test_windows_beyond_memory_across_a_restart(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    seconds = 15 if question is SLIDING else 250
    every = batches(3000, 7, seconds)
    for part in (every[:4], every[4:]):
        query.feed(part)
        query.run(memory="1MB", shards="8")
        if part is every[:4]:
            assert query.output.progress[-1].state_disk_bytes > 0
    query.check()
    assert any(each.state_disk_bytes > 0 for each in query.output.progress)
