"""The oracle itself, judged before it judges: by hand-worked cases, by Spark's windows, by Spark's own streaming."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tailrace.testing import Aggregate, Question, ScriptedSource, Windows, describe, differences, expected, judge
from tailrace.testing.compare import rows_of

SECOND = 1_000_000
COUNT = Aggregate("count", None, "n")


def question(**changes: object) -> Question:
    given_ = {
        "keys": (),
        "aggregates": (COUNT,),
        "windows": Windows(10, 10),
        "time_column": "ts",
        "delay": 0,
        **changes,
    }
    return Question(**given_)  # type: ignore[arg-type]


@given(
    time=st.integers(-(10**16), 10**16),
    size=st.integers(1, 50),
    slide=st.integers(1, 50),
    offset=st.integers(-100, 100),
)
def test_windows_hold_their_time_and_no_other_does(time: int, size: int, slide: int, offset: int) -> None:
    windows = Windows(size, min(slide, size), offset)
    starts = windows.starts(time)
    assert starts == sorted(set(starts))
    assert all(start <= time < start + size and (start - offset) % windows.slide == 0 for start in starts)
    assert len(starts) in (size // windows.slide, -(-size // windows.slide))


def test_windows_are_those_of_spark(spark: SparkSession) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    times = [rng.choice([rng.randrange(-(10**13), 10**13), rng.randrange(-20, 20) * SECOND]) for _ in range(300)]
    frame = spark.createDataFrame(
        pa.table({"row": range(len(times)), "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    )
    for size, slide, offset in [(10, 10, 0), (10, 2, 0), (10, 3, 0), (7, 5, 2), (60, 60, 59), (9, 9, -4)]:
        window = F.window("ts", f"{size} seconds", f"{slide} seconds", f"{offset} seconds")
        got = frame.select("row", window.start.alias("start"))
        found = sorted((row["row"], row["start"]) for row in rows_of(got.toArrow()))
        windows = Windows(size * SECOND, slide * SECOND, offset * SECOND)
        assert found == [(row, start) for row, time in enumerate(times) for start in windows.starts(time)]


def test_a_window_closes_with_the_batch_that_passes_it() -> None:
    judged = judge(question(delay=5), [[1, 9], [14], [15, 3], [3]])
    assert judged.closing == (4, 9, 10, 10)
    assert judged.closes(10) == 2
    # The 3 of epoch 2 still counts, since the window was open when that batch began; the 3 of epoch 3 is late.
    assert judged.late == (0, 0, 0, 1)
    assert [(c.epoch, c.row, c.start) for c in judged.contributions] == [
        (0, 0, 0),
        (0, 1, 0),
        (1, 0, 10),
        (2, 0, 10),
        (2, 1, 0),
    ]


def test_a_row_counts_in_those_of_its_windows_that_are_open() -> None:
    judged = judge(question(windows=Windows(10, 5)), [[17], [12, 4]])
    # Epoch 0 closes up to 17. Of the windows of 12, [5, 15) is closed and [10, 20) open; both of 4 are closed.
    assert judged.late == (0, 1)
    assert [(c.epoch, c.start) for c in judged.contributions] == [(0, 10), (0, 15), (1, 10)]


def test_rows_without_a_time_are_dropped_but_not_late() -> None:
    judged = judge(question(), [[None, 3], [None]])
    assert (judged.timeless, judged.late, judged.closing) == ((1, 1), (0, 0), (3, 3))


def test_sparks_rule_is_a_batch_behind_and_in_milliseconds() -> None:
    judged = judge(question(rule="spark", windows=Windows(1000, 1000)), [[2_999], [10], [10], []])
    assert judged.closing == (0, 2_000, 2_000, 2_000)
    assert judged.late == (0, 0, 1, 0)


def test_update_emits_what_the_batch_touched(spark: SparkSession) -> None:
    batches = [
        pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())})
        for keys, values in [([1, None, 1], [5, 6, 7]), ([], []), ([None], [1])]
    ]
    requested = Question(("k",), (Aggregate("sum", "v", "s"), COUNT), output_mode="update")
    answer = [rows_of(epoch.rows) for epoch in expected(spark, requested, batches)]
    assert sorted(answer[0], key=str) == [{"k": 1, "s": 12, "n": 2}, {"k": None, "s": 6, "n": 1}]
    assert answer[1:] == [[], [{"k": None, "s": 7, "n": 2}]]


def test_first_and_last_are_by_event_time_then_value_nulls_first(spark: SparkSession) -> None:
    at = [datetime(2020, 1, 1, 0, 0, s, tzinfo=UTC) for s in (5, 5, 5, 7, 7)]
    table = pa.table({"ts": pa.array(at, pa.timestamp("us", "UTC")), "v": ["b", None, "a", "z", None]})
    aggregates = (
        Aggregate("first", "v", "f"),
        Aggregate("first", "v", "fn", ignore_nulls=True),
        Aggregate("last", "v", "l"),
        Aggregate("last", "v", "ln", ignore_nulls=True),
    )
    requested = Question((), aggregates, time_column="ts", output_mode="update")
    assert rows_of(expected(spark, requested, [table])[0].rows) == [{"f": None, "fn": "a", "l": "z", "ln": "z"}]


@settings(max_examples=2)
@example(seed=1, windows=Windows(10, 3, 1), delay=0, output_mode="append", zero=-40)
@example(seed=2, windows=Windows(6, 2, -1), delay=3, output_mode="complete", zero=10**9)
@given(
    seed=st.integers(0, 2**32 - 1),
    windows=st.sampled_from([Windows(10, 10), Windows(10, 3, 1), Windows(6, 2, -1)]),
    delay=st.integers(0, 15),
    output_mode=st.sampled_from(["append", "update", "complete"]),
    zero=st.sampled_from([-40, 10**9]),
)
def test_sparks_own_stream_is_what_the_oracle_says_under_sparks_rule(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int, windows: Windows, delay: int,
    output_mode: str, zero: int,
) -> None:  # fmt: skip
    """``zero`` before 1970 shows that Spark's watermark starts there; far after it, that nothing else is special."""
    rng = random.Random(seed)
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    batches = []
    for epoch in range(8):
        times = [
            None if rng.random() < 0.1 else (zero + epoch * 6 + rng.randrange(-25, 12)) * SECOND + rng.randrange(SECOND)
            for _ in range(rng.choice([0, 5, 25]))
        ]
        keys = [rng.choice([None, 1, 2]) for _ in times]
        batches.append(pa.table([keys, times, [rng.randrange(100) for _ in times]], schema=schema))
    requested = Question(
        ("k",),
        (Aggregate("sum", "v", "s"), COUNT),
        Windows(windows.size * SECOND, windows.slide * SECOND, windows.offset * SECOND),
        "ts",
        delay * SECOND,
        output_mode,
        "spark",
    )
    path: Path = tmp_path_factory.mktemp("own")
    source = ScriptedSource(path / "in", schema)
    source.add(batches)
    window = F.window("ts", f"{windows.size} seconds", f"{windows.slide} seconds", f"{windows.offset} seconds")
    frame = source.stream(spark).withWatermark("ts", f"{delay} seconds").groupBy(window, "k")
    got: dict[int, pa.Table] = {}

    def save(batch, epoch: int) -> None:  # type: ignore[no-untyped-def]
        got[epoch] = batch.toArrow()

    query = (
        frame.agg(F.sum("v").alias("s"), F.count("*").alias("n"))
        .writeStream.outputMode(output_mode)
        .foreachBatch(save)
        .option("checkpointLocation", str(path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(got) == list(range(len(batches)))
    for want in expected(spark, requested, batches):
        found = differences(got[want.epoch], want.rows, ("window", "k"))
        assert not found, f"epoch {want.epoch}: {describe(found)}"
