"""Aggregates to accumulators: which mergeable values a state record keeps, and how they become output columns.

Accumulators are shared: two aggregates that need the same value of the same column keep it once. The order of
accumulators follows the query, so that the same query always gives the same state layout.
"""

from __future__ import annotations

from tailrace.api.aggregates import Aggregate
from tailrace.api.relations import Aggregation, OutputMode
from tailrace.api.windows import AnySession, CountWindow, CustomWindow, DynamicSessionWindow
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import STAMP, Accumulator, AccumulatorInput, Inputs, Output
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_forms import first_accumulators, plan_window
from tailrace.operators.pattern import Pattern
from tailrace.operators.planning.ttl import plan_ttl
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.planning.windows import closes_by_watermark
from tailrace.operators.spec import VALUES_MAX
from tailrace.state.layout import Merge
from tailrace.types import Field


def plan_aggregation(stream: Aggregation, output_mode: OutputMode, shards: int, name: str) -> AggregateSpec:
    """The operator that a state server runs for this aggregation."""
    window = stream.window
    expires = stream.state_ttl is not None
    accumulators = first_accumulators(window, stream.time_column, expires=expires)
    if expires and window is None:
        accumulators = [_last_update(stream)]
    outputs = [_output(aggregate, stream, accumulators) for aggregate in stream.aggregates]
    function = stream.function
    if function is not None:
        outputs = [Output(field.name, None, (), field.type) for field in function.fields]
    sends_rows = function is not None or any(aggregate.function.holistic for aggregate in stream.aggregates)
    sends_rows |= isinstance(window, CountWindow) or stream.store not in (None, Pattern.RMW)
    rows = _kept_rows(stream) if sends_rows else ()
    _check_width(stream, accumulators, rows)
    watermarked = closes_by_watermark(window, stream.watermark, stream.state_ttl)
    if output_mode is OutputMode.COMPLETE and not isinstance(window, AnySession):
        # As in Spark, where only sessions that ended by the watermark take no rows any more.
        watermarked = stream.state_ttl is not None and watermarked
    return AggregateSpec(
        name=name,
        keys=stream.keys,
        accumulators=tuple(accumulators),
        outputs=tuple(outputs),
        window=plan_window(window, expires=expires),
        window_name="" if window is None else window.name,
        window_position=stream.window_position,
        time_column=stream.time_column,
        emit_changed=output_mode is OutputMode.UPDATE,
        watermarked=watermarked,
        ansi=stream.ansi,
        shards=shards,
        rows=rows,
        function=None if function is None else packed(function.function),
        store=stream.store,
        ttl=plan_ttl(stream.state_ttl),
        complete=output_mode is OutputMode.COMPLETE,
    )


def _last_update(stream: Aggregation) -> Accumulator:
    """When a record was last updated, by the clock of the time-to-live. It comes before all else."""
    assert stream.state_ttl is not None
    keeping = [one.name for one in stream.aggregates if one.function.holistic]
    if keeping or stream.store not in (None, Pattern.RMW):
        what = f"{keeping[0]} keeps" if keeping else f"store {stream.store} keeps"
        raise AnalysisError(
            f"withStateTtl forgets records that are updated in place, and {what} every row: remove it, or add a "
            f"window, which ends, to groupBy"
        )
    if stream.state_ttl.processing:
        return STAMP
    time = stream.time_column
    assert time is not None
    return Accumulator(Merge.MAX, AccumulatorInput.VALUE, time.name, time.type)


def _output(aggregate: Aggregate, stream: Aggregation, accumulators: list[Accumulator]) -> Output:
    """The output column of an aggregate. What it keeps is added to ``accumulators``."""
    types = tuple(stream.field(column).type for column in aggregate.names)
    inputs = Inputs(aggregate.names, types, aggregate.arguments, aggregate.code)
    descriptor = DESCRIPTORS[aggregate.function.name]
    shared = tuple(_share(one, accumulators) for one in descriptor.accumulators(inputs))
    type_ = descriptor.result(inputs)
    return Output(aggregate.name, descriptor.name, shared, type_, inputs.columns, inputs.arguments, inputs.code)


def _kept_rows(stream: Aggregation) -> tuple[Field, ...]:
    """The columns that are kept of every row: event time and all that is aggregated."""
    names = {column for aggregate in stream.aggregates for column in aggregate.names}
    if stream.function is not None:
        names |= {field.name for field in stream.function.columns}
    if stream.time_column is not None:
        names.add(stream.time_column.name)
    if isinstance(stream.window, DynamicSessionWindow):
        names.add(stream.window.ends)
    return tuple(field for field in stream.schema if field.name in names)


def _share(wanted: Accumulator, accumulators: list[Accumulator]) -> int:
    """The index of an accumulator equal to ``wanted``, added where there is none."""
    if wanted not in accumulators:
        accumulators.append(wanted)
    return accumulators.index(wanted)


def _check_width(stream: Aggregation, accumulators: list[Accumulator], rows: tuple[Field, ...]) -> None:
    width = len(stream.keys) + isinstance(stream.window, CustomWindow)
    # Where rows are kept there are no records, but for windows by count, whose store is chosen later.
    records = not rows or isinstance(stream.window, CountWindow)
    width += max(len(rows), sum(one.valid_bits for one in accumulators) if records else 0)
    if width > VALUES_MAX:
        raise AnalysisError(
            f"the query keeps {width} values in each state record ({len(stream.keys)} group columns, "
            f"{len(accumulators)} aggregated values; first, last, sets, sketches and sums of wide decimals count "
            f"twice), and at most {VALUES_MAX} are possible: split the aggregates over two queries, group by one "
            "column that stands for several, or keep rows in place of aggregated values, with .store('AAR') of "
            "windows that end for all keys together and .store('AUR') of others"
        )
