"""``tailrace bench prefetch --moving``: keys and latency change midway, and the lookahead moves, as in the Keyed
Prefetching paper's Figure 10.

A join with a table whose latency is ours to set, behind three steps that take their time and that no plan can look
into: each is a candidate for hints, and the source before them. Three phases: keys pass all steps as they are; the
first step makes others of them, so that hints from the source are for nothing; the table becomes fast, so that a later
step is early enough. Each batch reports where its hints came from and what was missed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

import tailrace as tr
from tailrace.lab import registry
from tailrace.lab.bench import measure
from tailrace.lab.bench.comparison import NO_EMPTY_BATCHES, Report
from tailrace.lab.bench.prefetch.numbers import batch_of, hit_ratio, lookaheads, totals
from tailrace.lab.bench.prefetch.slow_table import SlowTable, value_of
from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import OURS, Batch, Bench, Files, Parameter, Settings, Value, Workload, register
from tailrace.lab.run import read_output
from tailrace.lab.run_check import check_rows
from tailrace.lab.workloads.events import write_batch

NAME = "prefetch-moving"
FEED = "events"
_STEPS = 3
_FURTHER = 2
_CONFS = {
    **NO_EMPTY_BATCHES,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",  # so that a step passes rows on before it has seen them all
}
PHASES = ("keys as they are", "the first step makes others of them", "the table becomes fast")

PARAMETERS: Mapping[str, Parameter] = {
    "keys": Parameter(1_000_000, "different keys, drawn evenly"),
    "shift": Parameter(0, "what the first step adds to keys"),
    "step_ms": Parameter(4, "how long each step takes for 100 rows"),
    "latency_file": Parameter("", "a file with the milliseconds that the table takes to answer"),
}


register(
    Bench(
        "prefetch-moving",
        "A join with a slow table behind three steps: the first begins to change the keys, then the table becomes "
        "fast, and the point from which hints come moves.",
        (),
    )
)


def _inputs(settings: Settings) -> Iterator[Batch]:
    for begin in range(0, settings.events, settings.rows):
        rows = min(settings.rows, settings.events - begin)
        keys = np.random.default_rng((settings.seed, begin)).integers(0, int(settings.values["keys"]), rows)
        shift = np.full(rows, int(settings.values["shift"]))
        yield {FEED: pa.table({"key": keys, "shift": shift, "number": np.arange(begin, begin + rows)})}


def _step(frame: DataFrame, first: bool, step_ms: int) -> DataFrame:
    """Rows after a while; the first step makes the keys what they are."""

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(step_ms / 1e3)
            if first:
                keys = batch.column("key").to_numpy() + batch.column("shift").to_numpy()
                batch = pa.RecordBatch.from_arrays([pa.array(keys), *batch.columns[1:]], schema=batch.schema)
            yield batch

    return frame.mapInArrow(slowly, frame.schema)


def _tailrace(feeds: Mapping[str, DataFrame], values: Mapping[str, Value]) -> Any:
    connect = partial(SlowTable, str(values["latency_file"]))
    table = tr.table.dbapi(
        connect, "select key, value from slow where key in ({keys})", "key", "value bigint", batch=64, maxAge=None
    )
    stream = tr.stream(feeds[FEED])
    for number in range(_STEPS):
        stream = stream.transform(_step, number == 0, int(values["step_ms"]))
    # As in the paper: hints go ahead of staging as soon as anything is missed, whatever that costs.
    return stream.join(table, "key").writeStream.outputMode("append")


def _oracle(files: Files, settings: Settings) -> pa.Table:
    rows = ds.dataset([str(path) for path in files[FEED]], format="parquet").to_table()
    keys = rows["key"].to_numpy() + rows["shift"].to_numpy()
    return pa.table({"key": keys, "number": rows["number"], "value": value_of(keys)})


register(
    Workload(
        name=NAME,
        description="A join with a slow table behind three slow steps, for the lookahead to move between",
        feeds={FEED: "key bigint, shift bigint, number bigint"},
        inputs=_inputs,
        queries={OURS: _tailrace},
        cannot=dict.fromkeys(("spark-rocksdb", "spark-memory"), "it is about where Tailrace's hints come from"),
        oracle=_oracle,
        final=lambda rows: rows.select(["key", "number", "value"]),
        parameters=PARAMETERS,
        rows=1_000,
    )
)


@dataclass(frozen=True)
class MovingOptions:
    quick: bool = False
    rows: int = 1_000
    slow_ms: float = 15
    fast_ms: float = 1
    seed: int = 1
    confs: Mapping[str, str] = field(default_factory=dict)

    @property
    def batches(self) -> int:
        """Of a phase."""
        return 12 if self.quick else 50


def run_moving(options: MovingOptions, work: Path, report: Report) -> dict[str, Any]:
    steps = len(PHASES) * options.batches + _FURTHER
    latency, files = work / "latency", list[Path]()
    latency.write_text(str(options.slow_ms))
    workload = registry.workload(NAME)
    values = {**workload.values(), "latency_file": str(latency)}
    report("starting", 0, steps)
    # A little memory, so that no key is still there when it comes again.
    given = {"memory": "2MB"}
    engine = EngineProcess(NAME, OURS, work, {**_CONFS, **options.confs}, values, given)
    reports: list[dict[str, Any]] = []

    def batches(count: int, shift: int) -> Iterator[str]:
        events = Settings(count * options.rows, options.rows, options.seed + len(files), {**values, "shift": shift})
        for batch in workload.inputs(events):
            files.append(write_batch(batch[FEED], work / "events", f"{len(files):06d}", measure.cores()))
            yield str(files[-1])

    try:
        engine.wait_ready()
        engine.ask("start", sink="noop", out=str(work / "rows"))
        before: dict[str, float] = {}
        for phase, words in enumerate(PHASES):
            latency.write_text(str(options.slow_ms if phase < 2 else options.fast_ms))
            for path in batches(options.batches, int(values["keys"]) if phase else 0):
                report(words, len(reports), steps)
                one = engine.ask("batch", file=path)
                reports.append({**batch_of(one, before), "phase": phase})
                before = totals(one)
        report("checking", len(reports), steps)
        checked = _check(engine, batches(_FURTHER, 1), files, work / "answers", workload, values)
    except BaseException:
        engine.kill()
        raise
    finally:
        engine.close()
    shutil.rmtree(work / "events")
    report("done", steps, steps)
    return {**_result(options, reports), "rows_checked": checked, "answers_equal": True, "confs": {OURS: engine.confs}}


def _check(
    engine: EngineProcess,
    paths: Iterator[str],
    files: list[Path],
    out: Path,
    workload: Workload,
    values: Mapping[str, Value],
) -> int:
    engine.ask("stop")
    engine.ask("start", sink="parquet", out=str(out))
    for path in paths:
        engine.ask("batch", file=path)
    engine.ask("stop")
    expected = _oracle({FEED: files[-_FURTHER:]}, Settings(1, 1, 0, values))
    output = read_output(out)
    found = expected.slice(0, 0) if output is None else workload.final(output)
    check_rows(NAME, found.cast(expected.schema), expected)
    return int(expected.num_rows)


def _result(options: MovingOptions, reports: list[dict[str, Any]]) -> dict[str, Any]:
    of: Callable[[str], list[Any]] = lambda name: [_ahead(each).get(name) for each in reports]  # noqa: E731
    moves = [
        {"batch": at, "from": before, "to": after, "reason": reason}
        for at, (before, after, reason) in enumerate(zip(of("lookahead"), of("next"), of("reason"), strict=True))
        if before != after
    ]
    missed = [round(1 - ratio, 4) if (ratio := hit_ratio([each])) is not None else 0.0 for each in reports]
    return {
        "bench": NAME,
        "lookaheads": lookaheads(reports),
        "moves": {"moves": moves},
        "lookahead": {"lookahead": of("lookahead"), "phase": [each["phase"] for each in reports], "miss_ratio": missed},
        "slack_ms": {"slack": of("slackMsP99")},
        "phase_hit_ratio": {
            words: hit_ratio([each for each in reports if each["phase"] == phase]) for phase, words in enumerate(PHASES)
        },
        "median_ms": {OURS: measure.median([each["ms"] for each in reports])},
        "series_ms": {OURS: [each["ms"] for each in reports]},
        "series_miss_ratio": {OURS: missed},
        "series_wait_ms": {OURS: [round(each["wait_ms"], 3) for each in reports]},
        "series_fetch_ms": {OURS: [round(each["fetch_ms_p99"], 3) for each in reports]},
        "rows": options.rows,
        "batches": options.batches,
        "slow_ms": options.slow_ms,
        "fast_ms": options.fast_ms,
        "seed": options.seed,
        "machine": measure.machine(),
        "versions": measure.versions(),
    }


def _ahead(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Of the join, which is the query's only operator."""
    found: dict[str, Any] = batch["lookahead"][0] if batch["lookahead"] else {}
    return found
