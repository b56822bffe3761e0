"""A sink that is a table or a topic (``tailrace.sinks``): the driver gives it an epoch's rows as Arrow batches.

The rows come from the state servers one batch after the other, so neither the driver nor Spark holds an epoch. Where
Spark makes other rows of them, its tasks set theirs aside, and the driver reads them from there.

Writing and publishing are one transaction of the table: so both are done in ``publish``.

Threads: those of ``contract``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import types as spark_types

from tailrace.api.definition import TableSink
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.ids import Attempt
from tailrace.sinks.contract import Owner
from tailrace.sinks.epochs import EpochWriter
from tailrace.sinks.registry import table_of
from tailrace.spark.sinks.contract import SinkEpoch, SinkRun
from tailrace.spark.sinks.epoch_output import EpochOutput
from tailrace.spark.sinks.set_aside import RowsSetAside


class EpochTable:
    pipelined = False

    def __init__(self, sink: TableSink, schema: spark_types.StructType) -> None:
        self._options = sink.options
        self._schema = pa.schema(list(_arrow_type(schema)))
        self._table = table_of(sink.options, self._schema)
        self._writer: EpochWriter | None = None
        self._output: EpochOutput | None = None
        self._aside: RowsSetAside | None = None

    def open(self, run: SinkRun) -> None:
        self._aside = None if run.place is None else RowsSetAside(run.place, run.run)
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
        if self._output is None:
            return
        if self._output.batches is not None:
            self._write(at.epoch, self._output.batches)
            return
        assert self._aside is not None
        rows = self._output.frame()
        aside = self._aside.collected(self._aside.receipts_of(rows), Attempt(at.epoch, at.try_))
        try:
            if aside.rows:
                self._write(at.epoch, aside.batches)
        finally:
            aside.drop()

    def _write(self, epoch: int, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        assert self._writer is not None
        self._writer.write(epoch, partial(_as_columns, batches, self._schema))

    def clean(self, epoch: int) -> None:
        if self._aside is not None:
            self._aside.clean(epoch)

    def stop(self) -> None:
        if self._writer is not None:
            self._writer.stop()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._aside is not None:
            self._aside.close()


def _as_columns(batches: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches():
        columns = [column.cast(field.type) for column, field in zip(batch.columns, schema)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


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
