"""Where an epoch's rows go.

Contract: a sink may see an epoch again after a crash, with the same rows. Formats with a path are made exact by
address: an epoch has a folder of its own, ``<path>/tailrace_epoch=<n>``, which is overwritten. ``memory`` and
``console`` are for looking, and not exact. A user's function must be idempotent by the epoch's number.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.api.definition import ForeachBatch, Format, QueryDefinition, Sink
from tailrace.errors import AnalysisError
from tailrace.spark.sinks.epoch_output import EpochOutput

EPOCH_COLUMN = "tailrace_epoch"
_CONSOLE_ROWS = 20


class EpochSink(Protocol):
    pipelined: bool
    """Whether its job may start before the epoch's rows are there: it does nothing but read them and write them."""

    def write(self, output: EpochOutput, epoch: int, again: bool) -> None:
        """Take an epoch's rows. ``again``: the sink may have seen this epoch before."""


def sink_of(query: QueryDefinition, spark: SparkSession) -> EpochSink:
    sink = query.sink
    if isinstance(sink, ForeachBatch):
        return _Function(sink)
    if sink.name == "noop":
        return _Noop()
    if sink.name == "console":
        return _Console(sink)
    if sink.name == "memory":
        assert query.name is not None
        return _Memory(spark, query.name)
    if sink.path is None:
        raise AnalysisError(
            f"format {sink.name!r} without a path cannot be overwritten epoch by epoch, so a replay would write rows "
            "twice: use .foreachBatch(function) and write there, idempotent by the epoch's number"
        )
    return _Files(sink, sink.path)


def late_sink_of(sink: Sink) -> EpochSink:
    """Where late rows go."""
    if isinstance(sink, ForeachBatch):
        return _Function(sink)
    if sink.path is None:
        return _Console(sink)
    return _Files(sink, sink.path)


class _Function:
    pipelined = False

    def __init__(self, sink: ForeachBatch) -> None:
        self._function = sink.function

    def write(self, output: EpochOutput, epoch: int, again: bool) -> None:
        self._function(output.frame(), epoch)


class _Files:
    pipelined = True

    def __init__(self, sink: Format, path: str) -> None:
        self._sink = sink
        self._path = path.rstrip("/")

    def write(self, output: EpochOutput, epoch: int, again: bool) -> None:
        if output.rows == 0 and not again:
            return  # nothing to write, and nothing to overwrite
        output.write(partial(self._save, epoch))

    def _save(self, epoch: int, rows: DataFrame) -> None:
        writer = rows.write.format(self._sink.name).mode("overwrite").options(**dict(self._sink.options))
        writer = writer.option("partitionOverwriteMode", "static")  # not only the partitions that the epoch has now
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.save(f"{self._path}/{EPOCH_COLUMN}={epoch}")


class _Noop:
    """Rows that are in the driver are dropped there; others are read by Spark's tasks and go to its own noop writer."""

    pipelined = True

    def write(self, output: EpochOutput, epoch: int, again: bool) -> None:
        if not output.local:
            output.write(lambda rows: rows.write.format("noop").mode("overwrite").save())


class _Console:
    pipelined = False

    def __init__(self, sink: Format) -> None:
        options = {name.lower(): value for name, value in sink.options}
        self._rows = int(options.get("numrows", _CONSOLE_ROWS))
        self._truncate = options.get("truncate", "true").lower() != "false"

    def write(self, output: EpochOutput, epoch: int, again: bool) -> None:
        line = "-" * 43
        print(f"{line}\nBatch: {epoch} ({output.rows} rows)\n{line}")
        output.frame().show(self._rows, self._truncate)


class _Memory:
    """A temporary view of all rows so far, kept in the driver. A replayed epoch replaces its rows."""

    pipelined = False

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark  # the user's own: Spark runs epochs in a clone whose views nobody else sees
        self._name = name
        self._epochs: dict[int, pa.Table] = {}

    def write(self, output: EpochOutput, epoch: int, again: bool) -> None:
        rows = output.frame()
        # Collected, since a remote output is dropped with the next epoch.
        self._epochs[epoch] = rows.toArrow()
        everything = pa.concat_tables([self._epochs[number] for number in sorted(self._epochs)])
        self._spark.createDataFrame(everything, schema=rows.schema).createOrReplaceTempView(self._name)
