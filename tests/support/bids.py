"""A stream of bids that needs no Spark: a column of each type, and a runtime that records what it is to start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.api.definition import QueryDefinition
from tailrace.api.options import Options
from tailrace.api.relations import Aggregation, OutputMode
from tailrace.api.stream import Stream
from tailrace.plan.explain import explain
from tailrace.plan.physical import plan_relation
from tailrace.types import DataType, Field

TYPES = {
    "ts": "timestamp",
    "ntz": "timestamp_ntz",
    "auction": "bigint",
    "price": "int",
    "tiny": "tinyint",
    "small": "smallint",
    "cost": "decimal(10,2)",
    "wide": "decimal(37,2)",
    "score": "double",
    "ratio": "float",
    "channel": "string",
    "open": "boolean",
    "day": "date",
    "raw": "binary",
    "tags": "array<string>",
    "extra": "map<string,int>",
    "person": "struct<id:bigint,name:string>",
    "nocase": "string collate UNICODE_CI",
    "a.b": "string",
}
SCHEMA = tuple(Field(name, DataType(type_)) for name, type_ in TYPES.items())


@dataclass
class RecordingRuntime:
    ansi: bool = True
    started: list[QueryDefinition] = field(default_factory=list)

    def start(self, query: QueryDefinition) -> Any:
        self.started.append(query)
        return query

    def explain(self, stream: Aggregation, output_mode: OutputMode, options: Options) -> str:
        return explain(plan_relation(stream, output_mode, options))


def bids(runtime: RecordingRuntime | None = None) -> Stream:
    return Stream("a DataFrame", SCHEMA, runtime or RecordingRuntime())
