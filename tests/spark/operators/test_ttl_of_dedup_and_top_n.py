"""``topN`` and ``dropDuplicates`` that forget, through Spark: by both clocks, over a restart and a replayed epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.queries.simple import SCHEMA, SECOND
from support.queries.ttl_events import EVENTS, set_epoch_times
from tailrace.testing import ScriptedSource

NOWS = [1000, 1003, 1004, 1006, 1009, 1020]
TTL = 5


def best(stream: Any) -> Any:
    return stream.groupBy("k").topN(2, "v", columns=["v"])


def forgotten(rows: dict[Any, Any], updated: dict[Any, int], before: int) -> None:
    for key in [key for key, time in updated.items() if time <= before]:
        del updated[key], rows[key]


def expected(kind: str, processing: bool) -> list[list[tuple[Any, ...]]]:
    """By epoch; in event time rows are late that would be forgotten already, of duplicates those behind the mark."""
    kept: dict[Any, list[int]] = {}
    updated: dict[Any, int] = {}
    mark = cutoff = -(2**63)
    out = []
    for table, now in zip(EVENTS, NOWS, strict=True):
        rows = table.set_column(1, "ts", table["ts"].cast(pa.int64())).to_pylist()
        late = (mark if kind == "unique" else cutoff) if not processing or kind == "unique" else -(2**63)
        mark = max([mark, *(row["ts"] - SECOND for row in rows)])
        cutoff = max(cutoff, (now * SECOND if processing else mark) - TTL * SECOND)
        if processing:
            forgotten(kept, updated, cutoff)
        emitted = set()
        first: list[tuple[Any, ...]] = []
        for row in sorted((row for row in rows if row["ts"] > late), key=lambda row: row["ts"]):
            key, time = row["k"], now * SECOND if processing else row["ts"]
            if kind == "unique":
                if key not in kept:
                    kept[key], updated[key] = [row["v"]], time
                    first.append((key, row["v"]))
                continue
            before = list(kept.get(key, []))
            kept[key] = sorted([*before, row["v"]], reverse=True)[:2]
            updated[key] = max(time, updated.get(key, time))
            if kept[key] != before:
                emitted.add(key)
        ranked = [(key, value, rank) for key in emitted for rank, value in enumerate(kept[key], 1)]
        out.append(sorted(first if kind == "unique" else ranked, key=repr))
        if not processing:
            forgotten(kept, updated, cutoff)
    return out


@pytest.mark.long
@pytest.mark.parametrize("mode", ["eventTime", "processingTime"])
@pytest.mark.parametrize("kind", ["best", "unique"])
def test_keys_are_forgotten_and_a_replay_does_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str
) -> None:
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    output: dict[int, list[tuple[Any, ...]]] = {}

    def save(batch: DataFrame, epoch: int) -> None:
        names = ["k", "v"] if kind == "unique" else ["k", "v", "rank"]
        rows = sorted((tuple(row[name] for name in names) for row in batch.toArrow().to_pylist()), key=repr)
        assert output.setdefault(epoch, rows) == rows, f"a replay of epoch {epoch} gives other rows"

    def run(nows: list[int]) -> None:
        set_epoch_times(monkeypatch, nows)
        stream = tr.stream(source.stream(spark)).withWatermark("ts", "1 second").withStateTtl(f"{TTL} seconds", mode)
        requested = stream.dropDuplicates(["k"]) if kind == "unique" else best(stream)
        writer = requested.writeStream.outputMode("append" if kind == "unique" else "update").foreachBatch(save)
        query = writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    source.add(EVENTS[:4])
    run(NOWS[:4])
    # As if the driver had died after epoch 3 was durable and before Spark knew: it comes again, an hour later.
    for name in ("3", ".3.crc"):
        (tmp_path / "check" / "commits" / name).unlink(missing_ok=True)
    run([5000])
    source.add(EVENTS[4:])
    run(NOWS[4:])
    assert [output[epoch] for epoch in range(len(EVENTS))] == expected(kind, mode == "processingTime")
