"""Which sink a query has, and the sinks that are no files.

These have no atomic step: ``noop``, ``memory`` and ``console`` are for looking, and not exact; a user's function must
be idempotent by the epoch's number. They look for a newer fence before they begin, so that a driver that was replaced
while it stood still leaves them alone, as far as that can be.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.api.definition import Foreach, ForeachBatch, Format, QueryDefinition, Sink, TableSink
from tailrace.api.relations import OutputMode, PassThrough
from tailrace.spark.sinks.contract import EpochSink, SinkEpoch, SinkRun
from tailrace.spark.sinks.epoch_output import EpochOutput
from tailrace.spark.sinks.files.sink import FileSink
from tailrace.spark.sinks.rows import RowWriter, partitioned_by_value
from tailrace.spark.sinks.tables import EpochTable
from tailrace.spark.sources.hops import output_schema_of
from tailrace.spark.sources.transforms import frame_of

_CONSOLE_ROWS = 20
_FENCE_AGE_S = 1.0
"""A driver that stood still for longer looks for a newer fence. It proves nothing here, so it may not cost much."""
_OUTPUT, _LATE = "output", "late"
"""A query's sinks by their names in the state location."""


def sink_of(query: QueryDefinition, spark: SparkSession) -> EpochSink:
    sink = query.sink
    if isinstance(sink, ForeachBatch):
        return _Function(sink)
    if isinstance(sink, Foreach):
        return _Rows(sink)
    if isinstance(sink, TableSink):
        passed = query.relation if isinstance(query.relation, PassThrough) else None
        schema = output_schema_of(query.relation) if passed is None else frame_of(passed.source).schema
        return EpochTable(sink, schema)
    if sink.name == "noop":
        return _Noop()
    if sink.name == "console":
        return _Console(sink)
    if sink.name == "memory":
        assert query.name is not None
        return _Memory(spark, query.name, replaces=query.output_mode is OutputMode.COMPLETE)
    assert sink.path is not None
    return FileSink(spark, sink, sink.path, _OUTPUT)


def late_sink_of(sink: Sink, spark: SparkSession) -> EpochSink:
    """Where late rows go."""
    if isinstance(sink, ForeachBatch):
        return _Function(sink)
    assert isinstance(sink, Format)
    if sink.path is None:
        return _Console(sink)
    return FileSink(spark, sink, sink.path, _LATE)


class _Direct:
    """A sink whose writing is its visible step."""

    pipelined = False

    def open(self, run: SinkRun) -> None:
        self._check_fence = run.check_fence

    def shared_folder(self) -> str | None:
        return None

    def begin(self, at: SinkEpoch) -> bool:
        self._check_fence(_FENCE_AGE_S)
        return True

    def publish(self, at: SinkEpoch) -> None:
        pass

    def clean(self, epoch: int) -> None:
        pass

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Function(_Direct):
    def __init__(self, sink: ForeachBatch) -> None:
        self._function = sink.function

    def write(self, output: EpochOutput, at: SinkEpoch) -> None:
        self._function(output.frame(), at.epoch)


class _Rows(_Direct):
    """Runs the user's Python once a row, in tasks."""

    def __init__(self, sink: Foreach) -> None:
        self._writer = sink.writer

    def write(self, output: EpochOutput, at: SinkEpoch) -> None:
        writer = RowWriter(self._writer, at.epoch)
        rows = output.frame()
        (partitioned_by_value(rows) if writer.knows_partitions else rows).foreachPartition(writer)


class _Noop(_Direct):
    """Rows that are in the driver are dropped there; others are read by Spark's tasks and go to its own noop writer."""

    pipelined = True

    def begin(self, at: SinkEpoch) -> bool:
        return True

    def write(self, output: EpochOutput, at: SinkEpoch) -> None:
        if not output.local:
            output.write(lambda rows: rows.write.format("noop").mode("overwrite").save())


class _Console(_Direct):
    def __init__(self, sink: Format) -> None:
        options = {name.lower(): value for name, value in sink.options}
        self._rows = int(options.get("numrows", _CONSOLE_ROWS))
        self._truncate = options.get("truncate", "true").lower() != "false"

    def write(self, output: EpochOutput, at: SinkEpoch) -> None:
        line = "-" * 43
        count = "" if output.rows is None else f" ({output.rows} rows)"
        print(f"{line}\nBatch: {at.epoch}{count}\n{line}")
        output.frame().show(self._rows, self._truncate)


class _Memory(_Direct):
    """A temporary view of all rows so far, kept in the driver. A replayed epoch replaces its rows.

    ``replaces``: the rows of an epoch are all there are.
    """

    def __init__(self, spark: SparkSession, name: str, *, replaces: bool) -> None:
        self._replaces = replaces
        self._spark = spark  # the user's own: Spark runs epochs in a clone whose views nobody else sees
        self._name = name
        self._epochs: dict[int, pa.Table] = {}

    def write(self, output: EpochOutput, at: SinkEpoch) -> None:
        rows = output.frame()
        if self._replaces:
            self._epochs.clear()
        # Collected, since a remote output is dropped with the next epoch.
        self._epochs[at.epoch] = rows.toArrow()
        everything = pa.concat_tables([self._epochs[number] for number in sorted(self._epochs)])
        self._spark.createDataFrame(everything, schema=rows.schema).createOrReplaceTempView(self._name)
