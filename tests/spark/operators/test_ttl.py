"""Rolling aggregates that forget keys, through Spark: by both clocks, over restarts, replays, a changed time-to-live.

The oracle keeps a dictionary of keys, epoch by epoch.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.processes import kill, session_servers, wait_until
from support.queries.simple import SCHEMA, SECOND, batches
from support.queries.ttl_events import EVENTS, set_epoch_times
from tailrace.env import clock
from tailrace.spark.epoch.time import epoch_clock
from tailrace.testing import ScriptedSource

DELAY = SECOND
Epoch = set[tuple[Any, ...]]


class Query:
    def __init__(self, spark: SparkSession, path: Path, ttl: int, mode: str) -> None:
        self.spark, self.path, self.mode = spark, path, mode
        self.ttl = ttl  # in seconds
        self.source = ScriptedSource(path / "in", SCHEMA)
        self.fed: list[tuple[pa.Table, int, int]] = []  # with the time-to-live and the processing time of each
        self.output: dict[int, Epoch] = {}

    def feed(self, tables: tuple[pa.Table, ...], nows: list[int] | None = None) -> None:
        self.source.add(tables)
        self.fed += [(table, self.ttl, now) for table, now in zip(tables, nows or [0] * len(tables), strict=True)]

    def start(self, *, available_now: bool) -> Any:
        def save(batch: DataFrame, epoch: int) -> None:
            rows = {(row["k"], row["total"], row["n"]) for row in batch.toArrow().to_pylist()}
            assert self.output.setdefault(epoch, rows) == rows, f"a replay of epoch {epoch} gives other rows"

        stream = tr.stream(self.source.stream(self.spark)).withWatermark("ts", "1 second")
        forgetting = stream.withStateTtl(f"{self.ttl} seconds", self.mode)
        sums = forgetting.groupBy("k").agg(tr.sum("v").alias("total"), tr.count().alias("n"))
        writer = sums.writeStream.outputMode("update").foreachBatch(save)
        writer = writer.option("checkpointLocation", str(self.path / "check"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self) -> Any:
        query = self.start(available_now=True)
        try:
            query.awaitTermination()
            return query
        finally:
            query.stop()

    def expected(self) -> list[Epoch]:
        keys: dict[Any, tuple[int, int, int]] = {}
        mark = cutoff = -(2**63)
        out = []
        for given, ttl, now in self.fed:
            rows = given.set_column(1, "ts", given["ts"].cast(pa.int64())).to_pylist()
            late = cutoff
            mark = max([mark, *(row["ts"] - DELAY for row in rows)])
            cutoff = max(cutoff, (now if self.mode == "processingTime" else mark) - ttl * SECOND)
            if self.mode == "processingTime":
                keys = {key: value for key, value in keys.items() if value[2] > cutoff}
                late = -(2**63)
            touched = set()
            for row in (row for row in rows if row["ts"] > late):
                total, n, updated = keys.get(row["k"], (0, 0, -(2**63)))
                time = now if self.mode == "processingTime" else row["ts"]
                keys[row["k"]] = (total + row["v"], n + 1, max(updated, time))
                touched.add(row["k"])
            out.append({(key, *keys[key][:2]) for key in touched})
            if self.mode == "eventTime":
                keys = {key: value for key, value in keys.items() if value[2] > cutoff}
        self.kept = len(keys)
        return out

    def check(self) -> None:
        assert [self.output[epoch] for epoch in range(len(self.fed))] == self.expected()


def test_keys_are_forgotten_by_event_time(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, 5, "eventTime")
    query.feed(EVENTS[:3])
    query.run()
    query.feed(EVENTS[3:])  # with a restart
    progress = query.run().lastProgress["stateOperators"][0]
    query.check()
    assert query.output[3] == {(2, 17, 1), (1, 42, 3)} and query.output[5] == {(1, 31, 1), (3, 93, 4), (2, 31, 1)}
    assert progress["numRowsTotal"] == query.kept == 3


def test_keys_are_forgotten_by_processing_time_and_a_replay_does_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nows = [1000, 1003, 1004, 1006, 1009, 1020]  # seconds at which epochs begin
    query = Query(spark, tmp_path, 5, "processingTime")
    query.feed(EVENTS[:4], [now * SECOND for now in nows[:4]])
    set_epoch_times(monkeypatch, nows[:4])
    query.run()
    # As if the driver had died after epoch 3 was durable and before Spark knew: it comes again, an hour later, and with
    # another time-to-live, which must not count for it.
    for name in ("3", ".3.crc"):
        (tmp_path / "check" / "commits" / name).unlink(missing_ok=True)
    set_epoch_times(monkeypatch, [5000])
    before, query.ttl = dict(query.output), 10
    query.run()
    assert query.output == before
    query.feed(EVENTS[4:], [now * SECOND for now in nows[4:]])
    set_epoch_times(monkeypatch, nows[4:])
    query.run()
    query.check()
    assert query.output[3] == {(2, 26, 2), (1, 42, 3)}  # 2 was last seen at 1000, and began anew
    assert query.output[4] == {(None, 19, 1), (3, 62, 3)}  # and null too, which had been forgotten by then


def test_a_clock_that_jumps_forgets_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set forward by a day while the query runs; and by a month when it is started again."""
    query = Query(spark, tmp_path, 3600, "processingTime")
    query.feed(EVENTS[:1], [0])
    ahead = [0.0]
    set_ahead = SimpleNamespace(
        now=lambda: clock.now() + ahead[0], monotonic=clock.monotonic, timestamp_text=clock.timestamp_text
    )
    monkeypatch.setattr(epoch_clock, "clock", set_ahead)
    running = query.start(available_now=False)
    try:
        running.processAllAvailable()
        ahead[0] = 86_400.0
        query.feed(EVENTS[1:3], [0, 0])
        running.processAllAvailable()
    finally:
        running.stop()
    ahead[0] = 30 * 86_400.0
    with pytest.raises(tr.CheckpointError, match=r"the newest epoch ran 4 weeks .* ago, .* option maxClockJump"):
        query.run()
    ahead[0] = 0.0
    query.feed(EVENTS[3:4], [0])
    query.run()
    query.check()
    assert query.output[3] == {(1, 42, 3), (2, 36, 3)}, "no key began anew"


@pytest.mark.long
def test_a_killed_server_forgets_what_it_should(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, 3, "eventTime")
    every = batches(12)
    query.feed(every[:5])
    running = query.start(available_now=False)
    try:
        for part in (every[5:8], every[8:]):
            running.processAllAvailable()
            assert sum(kill(server.pid) for server in session_servers()) == 1
            wait_until("the server's end", lambda: not session_servers(), 5)
            query.feed(part)
        running.processAllAvailable()
    finally:
        running.stop()
    query.check()
