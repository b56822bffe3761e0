"""A query's recorded accesses against those that Gadget simulates for the same events.

The simulation gets the events in the order in which the query does, and a watermark after each epoch. Everything else
is its own: the state machines know nothing of Tailrace's operators. Both traces must be alike: of one composition, and
within 5 % in mean stack distance and in unique sequences of every length.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.draw import drawn
from tailrace.lab.gadget.analysis.compare import compare
from tailrace.lab.gadget.events.watermarks import Watermarks
from tailrace.lab.gadget.operators.continuous import Aggregation
from tailrace.lab.gadget.operators.driver import pieces
from tailrace.lab.gadget.operators.windows import Windows
from tailrace.lab.gadget.traces.recording import read_recording
from tailrace.lab.gadget.traces.trace import Events, Operation, Trace, joined
from tailrace.testing import ScriptedSource

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
START = 1_000 * SECOND
WITHIN = 0.05
OPERATORS: dict[str, Any] = {
    "continuous aggregation": Aggregation(),
    "tumbling incremental": Windows(5 * SECOND, 5 * SECOND, holistic=False),
    "sliding join": Windows(5 * SECOND, 1 * SECOND, holistic=True),
}


def jobs(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and times of bursts, as a cluster's jobs make them: a job's tasks come together; some come late."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.zipf(1.8, count), 60)
    keys = np.repeat(rng.zipf(1.4, count) % 700, sizes)[:count]
    times = START + np.repeat(rng.exponential(150_000.0, count).cumsum().astype(np.int64), sizes)[:count]
    late = rng.random(count) < 0.05
    return keys.astype(np.int64), np.where(late, times - rng.integers(0, 8 * SECOND, count), times)


def inputs_of(name: str, seed: int, epochs: int, rows: int) -> list[Any]:
    """The epochs of each input."""
    made = []
    for side in range(2 if name == "sliding join" else 1):
        keys, times = jobs(seed + side, epochs * rows)
        keys += 300 * side  # few of the popular keys are so on both sides: a join would be busy with its pairs
        made.append(list(zip(np.split(keys, epochs), np.split(times, epochs), strict=True)))
    return made


def source(folder: Path, epochs: list[tuple[np.ndarray, np.ndarray]]) -> ScriptedSource:
    made = ScriptedSource(folder, SCHEMA)
    made.add(
        [pa.table([keys, pa.array(times, SCHEMA.field("ts").type), keys], schema=SCHEMA) for keys, times in epochs]
    )
    return made


def simulated(name: str, inputs: list[list[tuple[np.ndarray, np.ndarray]]]) -> Trace:
    """``inputs``: the epochs of each input. An epoch is that of the first, then that of the second."""
    parts = [part for epoch in zip(*inputs, strict=True) for part in epoch]
    sides = np.concatenate([np.full(len(keys), at % len(inputs), np.uint8) for at, (keys, _) in enumerate(parts)])
    events = Events(*(np.concatenate([part[i] for part in parts]) for i in (0, 1)), sides)
    at = np.cumsum([sum(len(keys) for keys, _ in epoch) for epoch in zip(*inputs, strict=True)])
    newest = [np.maximum.accumulate([times.max() for _, times in epochs]) for epochs in inputs]
    marks = Watermarks(at.astype(np.int64), np.minimum.reduce(newest).astype(np.int64))
    return joined(pieces(OPERATORS[name], events, marks, finish=False))


def stream(name: str, frames: list[Any]) -> Any:
    if name == "sliding join":
        right = frames[1].withColumnsRenamed({"ts": "at", "v": "w"})
        sides = tr.stream(frames[0]).withWatermark("ts", "0 seconds"), tr.stream(right).withWatermark("at", "0 seconds")
        return sides[0].join(sides[1], ["k"], window=tr.window("ts", "5 seconds", "1 second"))
    if name == "tumbling incremental":
        return (
            tr.stream(frames[0])
            .withWatermark("ts", "0 seconds")
            .groupBy(tr.window("ts", "5 seconds"), "k")
            .agg(tr.sum("v").alias("total"))
        )
    return tr.stream(frames[0]).groupBy("k").agg(tr.sum("v").alias("total"))


def recorded(name: str, spark: SparkSession, folder: Path, inputs: list[Any], **options: str) -> Trace:
    frames = [source(folder / f"in-{at}", epochs).stream(spark) for at, epochs in enumerate(inputs)]
    query = stream(name, frames).writeStream.option("checkpointLocation", str(folder / "check"))
    query = query.option("recordAccesses", str(folder / "accesses"))
    for option, value in options.items():
        query = query.option(option, value)
    query = query.outputMode("update" if name == "continuous aggregation" else "append").format("noop")
    started = query.trigger(availableNow=True).start()
    try:
        started.awaitTermination()
    finally:
        started.stop()
    return read_recording(folder / "accesses")


def check(made: Trace, real: Trace) -> None:
    found = compare(made, real)
    assert found.accesses[0] == found.accesses[1] and found.keys[0] == found.keys[1]
    assert found.composition_difference == 0
    assert found.stack_distance_difference is not None and found.stack_distance_difference < WITHIN
    assert found.sequences_difference < WITHIN
    # More than was asked for: access by access, they are the same.
    assert (made.operations == real.operations).all() and (made.keys == real.keys).all()
    assert made.events is not None and real.events is not None
    assert 0 <= len(made.events) - len(real.events) < WITHIN * len(made.events)  # late rows come to no operator


def test_accesses_of_a_query_are_those_simulated(spark: SparkSession, tmp_path: Path) -> None:
    (name,) = drawn(list(OPERATORS), __name__)
    inputs = inputs_of(name, seed=1, epochs=4, rows=1_000)
    check(simulated(name, inputs), recorded(name, spark, tmp_path, inputs))


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATORS)
def test_accesses_of_every_query_are_those_simulated(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """ScriptedQuery to combine rows in tasks, too: a recording does without."""
    inputs = inputs_of(name, seed=3, epochs=12, rows=4_000)
    check(simulated(name, inputs), recorded(name, spark, tmp_path, inputs, combine="on", commit="async"))


@pytest.mark.long
def test_each_operator_of_a_chain_has_a_recording(spark: SparkSession, tmp_path: Path) -> None:
    """Counts by key and window, then the windows of those: what the first emits, the second gets, from servers."""
    inputs = inputs_of("tumbling incremental", seed=5, epochs=6, rows=1_000)
    frame = source(tmp_path / "in", inputs[0]).stream(spark)
    counts = tr.stream(frame).withWatermark("ts", "0 seconds").groupBy(tr.window("ts", "5 seconds"), "k")
    chain = counts.agg(tr.count("*").alias("n")).groupBy("window").agg(tr.max("n").alias("most"))
    query = chain.writeStream.option("checkpointLocation", str(tmp_path / "check")).outputMode("append").format("noop")
    started = query.option("recordAccesses", str(tmp_path / "accesses")).trigger(availableNow=True).start()
    try:
        started.awaitTermination()
    finally:
        started.stop()
    found = {each.metadata["operator"]: each for each in map(read_recording, (tmp_path / "accesses").iterdir())}
    assert set(found) == {"aggregate", "aggregate-2"}
    first, second = found["aggregate"], found["aggregate-2"]
    made = simulated("tumbling incremental", inputs)
    assert (first.operations == made.operations).all() and (first.keys == made.keys).all()
    # One row for each window of a key that the first has closed.
    assert second.events is not None and len(second.events) == (first.operations == Operation.DELETE).sum()
    assert (second.operations == Operation.PUT).sum() == len(second.events)
