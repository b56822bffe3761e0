"""A sink that is a table or a topic (``tailrace.sinks``): the driver gives it an epoch's rows as Arrow batches.

The rows come from the state servers one batch after the other, so neither the driver nor Spark holds an epoch. Where
Spark makes other rows of them, its tasks send theirs through the driver's JVM, a partition at a time.

Writing and publishing are one transaction of the table: so both are done in ``publish``.

Threads: those of ``contract``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from tailrace.api.definition import TableSink
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.sinks.contract import Owner
from tailrace.sinks.epochs import EpochWriter
from tailrace.sinks.registry import table_of
from tailrace.spark.sinks.contract import SinkEpoch, SinkRun
from tailrace.spark.sinks.epoch_output import EpochOutput


class EpochTable:
    pipelined = False

    def __init__(self, sink: TableSink, schema: spark_types.StructType) -> None:
        self._options = sink.options
        self._schema = pa.schema(list(_arrow_type(schema)))
        self._table = table_of(sink.options, self._schema)
        self._writer: EpochWriter | None = None
        self._output: EpochOutput | None = None

    def open(self, run: SinkRun) -> None:
        owner, check_fence = Owner(run.query_id(), run.number), partial(run.check_fence, 0.0)
        self._writer = EpochWriter(self._table, owner, self._options.timeout / 1e6, check_fence)
        last = self._writer.last_epoch()
        if last > run.planned:
            raise CheckpointError(
                f"{self._table.shown} has the rows of this query up to epoch {last}, and its state only knows epochs "
                f"up to {run.planned}: the state is older than the table, and epochs that are planned anew would be "
                f"passed over. Restore the newest state, or start with new locations and a table without these rows."
            )

    def shared_folder(self) -> str | None:
        return None

    def begin(self, at: SinkEpoch) -> bool:
        self._output = None
        return True  # the table knows better, and says so in its transaction

    def write(self, output: EpochOutput, at: SinkEpoch) -> None:
        if output.rows != 0:
            self._output = output

    def publish(self, at: SinkEpoch) -> None:
        if self._output is not None:
            assert self._writer is not None
            self._writer.write(at.epoch, partial(_rows, self._output, self._schema))

    def clean(self, epoch: int) -> None:
        pass

    def stop(self) -> None:
        if self._writer is not None:
            self._writer.stop()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _rows(output: EpochOutput, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in output.batches() if output.batches is not None else _from_spark(output.frame()):
        columns = [column.cast(field.type) for column, field in zip(batch.columns, schema)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _from_spark(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Batches of a DataFrame, without its rows as Python objects: each comes as one value."""
    for row in frame.mapInArrow(_packed, "batch binary").toLocalIterator():
        with pa.ipc.open_stream(row.batch) as reader:
            yield from reader


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"batch": [out.getvalue().to_pybytes()]})


_ARROW: Mapping[type[spark_types.DataType], pa.DataType] = {
    spark_types.BooleanType: pa.bool_(),
    spark_types.ByteType: pa.int8(),
    spark_types.ShortType: pa.int16(),
    spark_types.IntegerType: pa.int32(),
    spark_types.LongType: pa.int64(),
    spark_types.FloatType: pa.float32(),
    spark_types.DoubleType: pa.float64(),
    spark_types.StringType: pa.string(),
    spark_types.BinaryType: pa.binary(),
    spark_types.DateType: pa.date32(),
    spark_types.TimestampType: pa.timestamp("us", "UTC"),  # a point in time, whatever the session's zone
    spark_types.TimestampNTZType: pa.timestamp("us"),
}


def _arrow_type(type_: spark_types.DataType) -> pa.DataType:
    """What PySpark makes of it differs between its versions, by the session's time zone and settings."""
    if isinstance(type_, spark_types.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, spark_types.ArrayType):
        return pa.list_(_arrow_type(type_.elementType))
    if isinstance(type_, spark_types.MapType):
        return pa.map_(_arrow_type(type_.keyType), _arrow_type(type_.valueType))
    if isinstance(type_, spark_types.StructType):
        return pa.struct([pa.field(field.name, _arrow_type(field.dataType)) for field in type_.fields])
    if type(type_) not in _ARROW:
        raise AnalysisError(f"a column of type {type_.simpleString()} has no form in a table: cast it before")
    return _ARROW[type(type_)]
