"""The programs as workloads: ``processor-count`` and so on, and ``processor-count-pandas`` with pandas frames.

The same class runs on both engines. On Tailrace time goes on by Spark's watermark here (the bench asks for it), so that
timers come up in the same epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor

import tailrace as tr
from tailrace.lab.registry import OURS, Query, Value, Workload, register
from tailrace.lab.workloads.processors import pandas_programs, programs
from tailrace.lab.workloads.processors.events import FEED, PARAMETERS, SCHEMA, inputs

PREFIX, PANDAS = "processor-", "-pandas"
_DELAY = "0 seconds"


@dataclass(frozen=True)
class Program:
    name: str
    description: str
    of_rows: type[StatefulProcessor]
    of_frames: type[StatefulProcessor]
    output: str
    mode: str
    time: str = "None"


PROGRAMS = (
    Program(
        "count",
        "a running count and sum of each key",
        programs.RunningCount,
        pandas_programs.RunningCount,
        programs.COUNT_OUTPUT,
        "Update",
    ),
    Program(
        "session",
        "sessions of each key, which a timer ends",
        programs.Sessions,
        pandas_programs.Sessions,
        programs.SESSION_OUTPUT,
        "Append",
        "EventTime",
    ),
    Program(
        "buffer",
        "values of each key in a list until there are enough",
        programs.Buffer,
        pandas_programs.Buffer,
        programs.BUFFER_OUTPUT,
        "Append",
    ),
    Program(
        "maps",
        "counts of each key in a map of maps with a time-to-live",
        programs.Maps,
        pandas_programs.Maps,
        programs.MAPS_OUTPUT,
        "Update",
        "ProcessingTime",
    ),
)


def _query(program: Program, pandas: bool, ours: bool) -> Query:
    def run(feeds: Mapping[str, DataFrame], values: Mapping[str, Value]) -> Any:
        stream: Any = tr.stream(feeds[FEED]) if ours else feeds[FEED]
        grouped = stream.withWatermark("ts", _DELAY).groupBy("key")
        processed = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
        processor = program.of_frames() if pandas else program.of_rows()
        rows = processed(processor, program.output, program.mode, program.time)
        return rows.writeStream.outputMode(program.mode.lower())

    return run


def _workload(program: Program, pandas: bool) -> Workload:
    with_what = "transformWithStateInPandas" if pandas else "transformWithState"
    return Workload(
        name=f"{PREFIX}{program.name}{PANDAS if pandas else ''}",
        description=f"{with_what}: {program.description}",
        feeds={FEED: SCHEMA},
        inputs=inputs,
        queries={OURS: _query(program, pandas, True), "spark-rocksdb": _query(program, pandas, False)},
        cannot={"spark-memory": "Spark has these functions on its RocksDB store alone"},
        parameters=PARAMETERS,
        rows=200_000,
    )


register(*(_workload(program, pandas) for program in PROGRAMS for pandas in (False, True)))
