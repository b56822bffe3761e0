"""A whole query on rows of a test: no streaming query, no Spark session, no JVM.

The query is a function of streams, as a user has it in a module of theirs. Its plan is the engine's own, and so are the
ingest, the operators and the exchanges between them; they run one epoch a batch, in this process, on one shard. Time
stands still between two batches, and is what the test says. What only Spark can do (expressions, ``where``,
``transform``) is refused: test the part that keeps state, and give it rows as they are behind Spark's part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa

from tailrace.api.definition import QueryDefinition
from tailrace.api.processors import ProcessorCode, TimeMode
from tailrace.api.relations import Join, JoinSide, Relation, sources_of
from tailrace.api.stream import Stream
from tailrace.api.tables import LookupTable
from tailrace.env.files.scratch import temporary_folder
from tailrace.errors import AnalysisError
from tailrace.ids import MIN_MICROS
from tailrace.operators.base import Timed
from tailrace.operators.exchange import handed_over, in_fixed_order, output_types
from tailrace.operators.ingest.contract import Ingest
from tailrace.operators.join.spec import LEFT, RIGHT, JoinSpec
from tailrace.operators.output import schema_of
from tailrace.operators.registry import ingest_of, operator_with
from tailrace.operators.resources import Resources
from tailrace.operators.spec import SIDE, TIME, OperatorSpec
from tailrace.plan.physical import PhysicalPlan, Stage, plan_query
from tailrace.spark.epoch.time.epoch_times import EpochTimes, QueryTime
from tailrace.spark.epoch.time.watermark import Watermark
from tailrace.spark.processors.code import TIMEOUTS, group_state_code, processor_code
from tailrace.spark.sources.schema import fields_of
from tailrace.state.rows.columns import arrow_type
from tailrace.testing.schemas import struct_of
from tailrace.types import DataType, Field

Rows: TypeAlias = Iterable[Mapping[str, Any]] | Any
_ROW = "__row"
_MEMORY_BYTES = 256 << 20
_EPOCH_0 = datetime(1970, 1, 1, tzinfo=UTC)


class QueryTester:
    """Runs a query batch by batch. ``query``: from streams to a stream. ``schemas``: of these, PySpark's, or texts.

    >>> from datetime import datetime, timedelta
    >>> import tailrace as tr
    >>> def counts(bids):
    ...     windows = bids.withWatermark("ts", "10 seconds").groupBy(tr.window("ts", "1 minute"), "auction")
    ...     return windows.agg(tr.count().alias("n"))
    >>> tester = QueryTester(counts, "auction bigint, ts timestamp")
    >>> noon = datetime(2026, 1, 1, 12)
    >>> tester.batch([{"auction": 7, "ts": noon}, {"auction": 7, "ts": noon + timedelta(seconds=50)}])
    []
    >>> [(row["auction"], row["n"]) for row in tester.batch([{"auction": 8, "ts": noon + timedelta(seconds=70)}])]
    [(7, 2)]
    >>> tester.batch([{"auction": 7, "ts": noon}])
    []
    >>> [(row["auction"], row["tailrace_reason"]) for row in tester.late_rows]
    [(7, 'late')]
    """

    def __init__(
        self,
        query: Callable[..., Stream],
        *schemas: object,
        outputMode: str = "append",
        ansi: bool = True,
        timezone: str = "UTC",
        **options: Any,
    ) -> None:
        runtime = _RowsRuntime(ansi, timezone)
        self._sources = tuple(_Source(number, fields_of(struct_of(each))) for number, each in enumerate(schemas))
        made = query(*(Stream(source, source.fields, runtime) for source in self._sources))
        if not isinstance(made, Stream):
            raise AnalysisError(f"QueryTester: the query is a function from streams to a stream, and gave {made!r}")
        if made.relation is None:
            raise AnalysisError("QueryTester: nothing stateful was asked of this stream, and Spark does all the rest")
        writer = made.writeStream.outputMode(outputMode).foreachBatch(_no_sink).options(shards=1, **options)
        writer.option("checkpointLocation", "rows of a test").start()
        assert runtime.started is not None
        self._plan = plan_query(runtime.started)
        self._rule = self._plan.options.watermark
        _check_alone(self._plan)
        self._open = ExitStack()
        resources = Resources(_MEMORY_BYTES, self._open.enter_context(temporary_folder()), threads=1)
        self._operators: list[Any] = [operator_with(stage.operator, [0], resources) for stage in self._plan.stages]
        self._epoch = -1
        self._time = QueryTime(Watermark.from_json({}, self._rule, len(self._plan.inputs)), EpochTimes())
        self.late_rows: list[dict[str, Any]] = []
        """Of the last batch: those that came too late, or without an event time, with the reason in a last column."""

    def close(self) -> None:
        """Nothing is kept of the query."""
        for operator in self._operators:
            operator.close()
        self._open.close()

    def __enter__(self) -> QueryTester:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def watermark(self) -> datetime | None:
        """As of the last batch."""
        closed = self._time.watermark.closed
        return None if closed == MIN_MICROS else _EPOCH_0 + timedelta(0, 0, closed)

    @property
    def rows_kept(self) -> dict[str, int]:
        """By operator, what its state holds."""
        return {
            stage.operator.name: int(operator.rows)
            for stage, operator in zip(self._plan.stages, self._operators, strict=True)
        }

    def batch(self, *rows: Rows, now: datetime | None = None) -> list[dict[str, Any]]:
        """What the query gives in an epoch with these rows, which begins at ``now``; that of the last one if None.

        For each stream its rows, as mappings, an Arrow table or a pandas frame; what is not named is null, and a stream
        that is not named has none.
        """
        if len(rows) > len(self._sources):
            raise AnalysisError(f"batch: rows of {len(rows)} streams, and the query reads {len(self._sources)}")
        tables = [source.table(given) for source, given in zip(self._sources, rows, strict=False)]
        tables += [source.table(()) for source in self._sources[len(rows) :]]
        epoch, before, late = self._epoch + 1, self._time, _Late()
        ingested = self._ingested(epoch, tables, before, late)
        after = self._after(before, [ingest for ingest, _ in ingested], now)
        given: list[Sequence[pa.RecordBatch]] = []
        try:
            for stage, operator, (_, frames) in zip(self._plan.stages, self._operators, ingested, strict=True):
                frames = [*frames, *self._exchanged(stage, epoch, before, given)]
                if isinstance(operator, Timed):
                    operator.set_times(after.times.now, after.times.expired_by(stage))
                operator.apply(epoch, frames)
                given.append(operator.advance(epoch, before.late_before(stage), after.watermark_of(stage)))
        except BaseException:
            for operator in self._operators[: len(given) + 1]:
                operator.undo(epoch)
            raise
        made = [row for number in self._plan.outputs for batch in given[number] for row in batch.to_pylist()]
        for operator in self._operators:
            operator.forget(epoch)
        self._epoch, self._time, self.late_rows = epoch, after, late.rows
        return made

    def _ingested(
        self, epoch: int, tables: Sequence[pa.Table], before: QueryTime, late: _Late
    ) -> list[tuple[Ingest | None, list[Any]]]:
        """By stage, what has read the batch's rows for it, and the frames that this has made."""
        made: list[tuple[Ingest | None, list[Any]]] = []
        for stage in self._plan.stages:
            if not stage.ingests:
                made.append((None, []))
                continue
            batches = [batch for batch in _read(stage, tables) if len(batch)]
            ingest = ingest_of(stage.operator, before.late_before(stage), False, _types(stage), epoch)
            ingest.counts.late_taker = late
            made.append((ingest, [ingest.frame(batches)] if batches else []))
        return made

    def _after(self, before: QueryTime, ingests: Sequence[Ingest | None], now: datetime | None) -> QueryTime:
        """The query's time at the end of the epoch."""
        plan, watermark = self._plan, before.watermark
        if plan.delays is not None:
            seen: dict[int, int] = defaultdict(lambda: int(MIN_MICROS))
            for stage, ingest in zip(plan.stages, ingests, strict=True):
                for number, time in zip(stage.inputs, [] if ingest is None else ingest.counts.times_max, strict=False):
                    if number is not None:
                        seen[number] = max(seen[number], time)
            times = [seen[number] for number in range(len(plan.inputs))]
            watermark = watermark.after(times, plan.delays, self._rule, plan.policy)
        micros = before.times.now
        if now is not None:
            now = now if now.tzinfo is not None else now.replace(tzinfo=UTC)
            micros = int((now - _EPOCH_0) / timedelta(microseconds=1))
        return QueryTime(watermark, before.times.after(plan, watermark, micros))

    def _exchanged(
        self, stage: Stage, epoch: int, before: QueryTime, given: Sequence[Sequence[pa.RecordBatch]]
    ) -> Iterator[Any]:
        """The rows of the stage before as frames of this one."""
        for number in stage.before:
            source = self._plan.stages[number].operator
            ingest = ingest_of(stage.operator, before.late_before(stage), False, output_types(source), epoch)
            for batch in in_fixed_order(given[number], source):
                yield ingest.frame([handed_over(batch, stage.operator)])


@dataclass(frozen=True, eq=False)
class _Source:
    """One of the streams that a query reads."""

    number: int
    fields: tuple[Field, ...]

    def table(self, rows: Rows) -> pa.Table:
        schema = schema_of(self.fields)
        if isinstance(rows, pa.Table):
            return rows.select(schema.names).cast(schema)
        if hasattr(rows, "to_dict"):  # a pandas frame
            return pa.Table.from_pandas(rows, schema, preserve_index=False)
        return pa.Table.from_pylist(list(rows), schema)


class _Late:
    """Takes the rows that are left out."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def take(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.to_pylist()


def _read(stage: Stage, tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """What a stage reads of the streams, in the columns in which it does."""
    relation, spec = stage.relation, stage.operator
    for number, source in enumerate(sources_of(relation)):
        if not isinstance(source, _Source):
            continue
        table = tables[source.number]
        if isinstance(relation, Join):
            assert isinstance(spec, JoinSpec)
            table = _side(spec, (relation.left, relation.right)[number], number, table)
        else:
            table = _columns(spec, table)
        yield from table.combine_chunks().to_batches()


def _types(stage: Stage) -> dict[str, DataType]:
    """Of what ``_read`` gives."""
    spec, (source, *_) = stage.operator, sources_of(stage.relation)
    if isinstance(spec, JoinSpec):
        return {field.name: field.type for field in (*spec.keys, *spec.rows)}
    assert isinstance(source, _Source)
    return {_ROW: DataType("boolean"), **{field.name: field.type for field in source.fields}}


def _columns(spec: OperatorSpec, table: pa.Table) -> pa.Table:
    """Where no column is needed, one stands for the rows: a batch without columns does not know how many it has."""
    read = [name for name in table.column_names if name in spec.reads]
    return table.select(read) if read else pa.table({_ROW: pa.repeat(True, len(table))})


def _side(spec: JoinSpec, side: JoinSide, number: int, table: pa.Table) -> pa.Table:
    """Rows of one side in the columns that ``JoinSpec`` names for both."""
    columns = {named.name: table[key.name] for key, named in zip(side.keys, spec.keys, strict=True)}
    time = arrow_type(spec.time_type)
    columns[SIDE] = pa.repeat(number == RIGHT, len(table))
    columns[TIME] = pa.nulls(len(table), time) if side.watermark is None else table[side.watermark.column.name]
    for each in (LEFT, RIGHT):
        for field in spec.columns(each):
            none = pa.nulls(len(table), arrow_type(field.type))
            columns[field.name] = table[field.name] if each == number else none
    return pa.table(columns)


def _check_alone(plan: PhysicalPlan) -> None:
    if plan.hop is not None or any(stage.by_spark for stage in plan.stages):
        _refuse("a join of operators' rows")


def _no_sink(rows: object, epoch: int) -> None:
    """Nobody calls it."""


def _refuse(label: str) -> NoReturn:
    raise AnalysisError(
        f"{label}: Spark does this, and QueryTester runs what keeps state, without Spark: give it the part "
        f"between, with rows as they are there; or run the whole query with ScriptedSource and a session"
    )


class _RowsRuntime:
    """Takes a query in, and does for it what needs no session."""

    def __init__(self, ansi: bool, timezone: str) -> None:
        self._ansi = ansi
        self._timezone = timezone
        self.started: QueryDefinition | None = None

    @property
    def ansi(self) -> bool:
        return self._ansi

    def fields(self, schema: object) -> tuple[Field, ...]:
        return fields_of(struct_of(schema))

    def initial_state(self, grouped: object, keys: object, title: str) -> NoReturn:
        _refuse("an initial state")

    def processor(self, processor: object, output: object, time_mode: TimeMode, *, pandas: bool) -> ProcessorCode:
        return processor_code(processor, output, time_mode, self._timezone, pandas=pandas, parse=struct_of)

    def group_state(
        self, function: Any, output: object, state: object, timeout: str, *, watermarked: bool
    ) -> tuple[ProcessorCode, TimeMode]:
        code = group_state_code(
            function, output, state, timeout, self._timezone, watermarked=watermarked, parse=struct_of
        )
        return code, TIMEOUTS[timeout]

    def table_fields(self, table: LookupTable) -> tuple[Field, ...]:
        if table.schema is None:
            raise AnalysisError(f"{table.shown}: give it a schema, since no session reads its files here")
        return self.fields(table.schema)

    def enriched(self, source: object, table: object, on: Sequence[object], how: str) -> NoReturn:
        _refuse("a join with a static table")

    def transformed(self, source: object, function: object, time: str | None, label: str) -> NoReturn:
        _refuse(label)

    def rows(self, source: object) -> NoReturn:
        _refuse("union")

    def projected(self, *args: object, **kwargs: object) -> NoReturn:
        _refuse("an expression of PySpark's")

    def with_columns(self, *args: object, **kwargs: object) -> NoReturn:
        _refuse("an expression of PySpark's")

    def hop(self, relation: Relation, function: object, label: str, *others: Relation) -> NoReturn:
        _refuse(label)

    def start(self, query: QueryDefinition) -> Any:
        self.started = query
        return None

    def explain(self, *args: object) -> NoReturn:
        _refuse("explain()")
