"""``groupBy().agg()``, ``count()``, ``GROUP BY`` and ``SELECT DISTINCT`` become an aggregation."""

from __future__ import annotations

from dataclasses import replace

from tailrace.api.grouped import GroupedStream
from tailrace.api.relations import Aggregation
from tailrace.api.stream import Stream
from tailrace.api.windows import AnyWindow, Window
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.aggregate import functions as ours
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.functions import aggregate_of, ansi_of
from tailrace.spark.expressions.places import placed
from tailrace.spark.expressions.plans import Aggregated, Node
from tailrace.spark.expressions.windows import TakenWindow, is_brought, take_window
from tailrace.spark.plan_reader.reading import Made, Reading, event_time_of

_WINDOW = "window"


def read_aggregation(node: Node, reading: Reading) -> Made:
    return _aggregation(node.aggregated(), node.child, reading)


def read_distinct(node: Node, reading: Reading) -> Made:
    """Spark groups by all columns: in ``update`` mode a row is given whenever it comes, and not only the first time."""
    return _aggregation(Aggregated(node.output, [], node.output), node.child, reading)


def _aggregation(parts: Aggregated, child: Node, reading: Reading) -> Made:
    taken, window_key = _window(parts, child)
    moments = _event_times(parts, child)
    if moments and (window_key is not None or len(moments) > 1):
        raise AnalysisError(
            f"groupBy({moments[0].text}): groups by the event time itself and by a window or another time: Tailrace "
            f"forgets groups by one of them"
        )
    plan = child if taken is None else taken.plan
    gone = None if window_key is None or taken is None else (window_key.unaliased.id, f"the {window_key.window_kind}")
    if moments and moments[0].nullable and not reading.final:
        raise AnalysisError(
            f"groupBy({moments[0].text}): Spark has a group of the rows without an event time, but in append mode: let "
            f"the column have no nulls before withWatermark, as by coalesce"
        )
    columns = reading.columns(gone)
    window = None if taken is None else taken.named(columns.take, _WINDOW)
    made_here = None if taken is None else window_key
    names = [_WINDOW if key is made_here else columns.take(key.unaliased) for key in parts.keys]
    if moments:
        window = Window(columns.take(moments[0]), Micros(1), Micros(1), Micros(0), _WINDOW, lasts=Micros(0))
    aggregates = []
    for number, call in enumerate(parts.calls):
        with placed(call):
            aggregates.append(aggregate_of(call, columns).alias(reading.name("a", number, call.function.text)))
    time = taken.time if taken is not None else None if window_key is None else window_key.unaliased
    time = moments[0] if moments else time
    delay = None if time is None else event_time_of(plan, time)
    if any(each.function.needs_time for each in aggregates) and time is None:
        time, delay = _any_event_time(plan)
    timed = None if time is None or delay is None else (columns.take(time), delay)
    aggregates = aggregates or [ours.count().alias(reading.name("a", 0))]
    stream = reading.stream(plan, columns, timed)
    made = _grouped(stream, [_WINDOW, *names] if moments else names, window).agg(*aggregates)
    relation = made.relation
    assert isinstance(relation, Aggregation)
    leaf = [
        *((key.attribute, name) for key, name in zip(parts.keys, names, strict=True)),
        *((call.result, reading.name("a", number)) for number, call in enumerate(parts.calls)),
    ]
    _note_names(parts, names, reading)
    relation = replace(relation, ansi=ansi_of(parts.calls, relation.ansi))
    return Made(relation, tuple(leaf), tuple(parts.results))


def _note_names(parts: Aggregated, names: list[str], reading: Reading) -> None:
    """What the user calls the columns of groups and of aggregates: whoever looks at the state knows them by that."""
    for key, name in zip(parts.keys, names, strict=True):
        if name != _WINDOW:
            reading.texts.call(name, key.attribute.name)
    results = {each.unaliased.id: each.name for each in parts.results if each.unaliased.is_attribute}
    for number, call in enumerate(parts.calls):
        reading.texts.call(reading.name("a", number), results.get(call.result.id, call.function.text))


def _event_times(parts: Aggregated, plan: Node) -> list[Expression]:
    """The event times among the keys themselves: such a group is a window without length, which ends at its time."""
    keys = [key.unaliased for key in parts.keys if not key.window_kind]
    return [key for key in keys if event_time_of(plan, key) is not None]


def _window(parts: Aggregated, plan: Node) -> tuple[TakenWindow | None, Expression | None]:
    keys = [key for key in parts.keys if key.is_window]
    if len(keys) > 1:
        raise AnalysisError("groupBy takes one window, and this one has two")
    if not keys:
        return None, None
    column = _column_of(keys[0])
    return None if is_brought(plan, column) else take_window(plan, column), keys[0]


def _column_of(key: Expression) -> Expression:
    """The column of the rows below that a key is."""
    if not key.unaliased.is_attribute:
        raise AnalysisError(
            f"groupBy({key.text}): a window can be grouped by as it is, and not as part of an expression"
        )
    return key.unaliased


def _grouped(stream: Stream, names: list[str], window: AnyWindow | None) -> GroupedStream:
    unique = list(dict.fromkeys(names))
    groups = [window if name == _WINDOW and window is not None else name for name in unique]
    return stream.groupBy(*groups)


def _any_event_time(plan: Node) -> tuple[Expression | None, int | None]:
    """The event time of rows that are not grouped by it: some functions take rows in its order."""
    found = next((each for each in plan.output if each.delay_ms is not None), None)
    if found is None:
        return None, None
    return found, found.delay_ms
