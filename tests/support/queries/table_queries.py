"""Two queries into a table of ``support.sinks``: one without a state adds rows, one with groups replaces them.

Their rows have the columns of ``support.sinks.cases.SCHEMA``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.queries.engines import tailrace_stream
from support.queries.simple import ROLLING, SCHEMA
from support.sinks.cases import Case, Row
from tailrace.testing import ScriptedSource

KINDS = {"rows": False, "groups": True}
"""Whether rows replace others."""


def writer_of(spark: SparkSession, root: Path, kind: str, case: Case) -> Any:
    frame = ScriptedSource(root / "in", SCHEMA).stream(spark).where("k is not null")
    if kind == "rows":
        writer = tr.writeStream(frame.select("k", "v", F.col("k").cast("string").alias("name")), fallback=False)
    else:
        n = F.col("n").cast("string").alias("name")
        writer = tailrace_stream(frame, ROLLING).select("k", F.col("total").alias("v"), n).writeStream
    writer = writer.outputMode("update" if KINDS[kind] else "append").format(case.format)
    return writer.options(**case.options(KINDS[kind])).option("checkpointLocation", str(root / "check"))


def wanted(kind: str, fed: tuple[pa.Table, ...]) -> list[Row]:
    rows = [(row["k"], row["v"]) for table in fed for row in table.to_pylist() if row["k"] is not None]
    if kind == "rows":
        return [(k, v, str(k)) for k, v in rows]
    return sorted(
        (key, sum(v for k, v in rows if k == key), str(sum(k == key for k, _ in rows))) for key in {k for k, _ in rows}
    )
