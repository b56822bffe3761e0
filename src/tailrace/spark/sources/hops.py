"""What Spark makes of operators' outputs within an epoch, without a state of its own.

When the query is planned, a hop's function is called with an empty DataFrame, to know the columns of what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.api.relations import Join, Relation, SparkHop, Watermark
from tailrace.api.windows import AnyWindow, CountWindow
from tailrace.errors import AnalysisError
from tailrace.spark.expressions.lineage import chooses, passed_on, unrepeatable
from tailrace.spark.expressions.plans import plan_of
from tailrace.spark.sources.nested import kept_fields
from tailrace.spark.sources.schema import fields_of, schema_of
from tailrace.types import DataType, Field, window_of

_EVENT_TIME = "spark.watermarkDelayMs"
_TIME_WINDOW = "spark.timeWindow"
"""How Spark marks these columns. The marks stay where a column is renamed, and where ``window_time`` is taken of it."""


def hop_over(
    spark: SparkSession,
    relations: Sequence[Relation],
    function: Callable[..., object],
    label: str,
    *,
    kept: bool = False,
) -> SparkHop:
    """The hop with what the function makes of operators' rows; behind hops, one that does all of it.

    ``kept``: an operator behind it may keep nested values.
    """
    given = [no_rows_of(spark, each) for each in relations]
    try:
        made = _checked(function(*given), label)
    except PySparkException as error:
        raise AnalysisError(f"{label}: {str(error).splitlines()[0]}") from error
    changing = unrepeatable(plan_of(made))
    if changing is not None:
        raise AnalysisError(
            f"{label}: {changing.text} would give something else in a replay: compute it before the first operator, or "
            f"in foreachBatch"
        )
    window = _window(relations, given, made)
    given_fields = kept_fields(made.schema) if kept else fields_of(made.schema)
    fields = tuple(_as_bounds(each) if window and each.name == window.name else each for each in given_fields)
    event_time = _event_time(relations, made)
    if window is not None:
        bounds = next(each for each in fields if each.name == window.name)
        event_time = Watermark(bounds, max(mark.delay for each in relations if (mark := each.event_time) is not None))
    inputs, function = _joined(relations, function)
    labels = [*(each.label for each in relations if isinstance(each, SparkHop)), label]
    first = relations[0]
    timed = first.event_time == event_time and (window is not None or _window_name(first) is None)
    choosing = len(inputs) == 1 and timed and (not isinstance(first, SparkHop) or first.chooses)
    choosing = choosing and chooses(plan_of(made), plan_of(given[0]))
    return SparkHop(inputs, function, fields, ", ".join(labels), event_time, window, choosing)


def _joined(
    relations: Sequence[Relation], function: Callable[..., object]
) -> tuple[tuple[Relation, ...], Callable[..., object]]:
    """The operators behind which a function is, and the function of their rows."""
    if not any(isinstance(each, SparkHop) for each in relations):
        return tuple(relations), function

    def of_operators(*outputs: DataFrame) -> object:
        rest = iter(outputs)
        return function(
            *(
                made_by_hop(each, *islice(rest, len(each.inputs))) if isinstance(each, SparkHop) else next(rest)
                for each in relations
            )
        )

    inputs = (each.inputs if isinstance(each, SparkHop) else (each,) for each in relations)
    return tuple(one for some in inputs for one in some), of_operators


def made_by_hop(hop: SparkHop, *outputs: DataFrame) -> DataFrame:
    """The rows of an epoch."""
    made = _checked(hop.function(*outputs), hop.label)
    names = [field.name for field in hop.fields]
    if made.columns != names:
        raise AnalysisError(
            f"{hop.label}: the function gave the columns {', '.join(made.columns)} in this epoch, and "
            f"{', '.join(names)} when the query was planned: it must always give the same ones"
        )
    return made


def no_rows_of(spark: SparkSession, relation: Relation) -> DataFrame:
    """A DataFrame with the columns of a relation, as a hop sees them, and with what Spark knows of them."""
    if isinstance(relation, SparkHop):
        return made_by_hop(relation, *(no_rows_of(spark, each) for each in relation.inputs))
    return spark.createDataFrame([], schema=output_schema_of(relation))


def output_schema_of(relation: Relation) -> StructType:
    """The columns of a relation, as a hop or a sink sees them: a window is a struct of its bounds."""
    windowed = _window_name(relation)
    fields = relation.fields
    schema = schema_of(Field(each.name, window_of(each.type)) if each.name == windowed else each for each in fields)
    return marked(schema, relation)


def marked(schema: StructType, relation: Relation) -> StructType:
    """The schema of an operator's rows with Spark's marks of the window and of event time."""
    windowed, delays = _window_name(relation), {each.column.name: each.delay for each in _times(relation)}
    for field in schema.fields:
        if field.name == windowed:
            field.metadata[_TIME_WINDOW] = True
        if field.name in delays:
            field.metadata[_EVENT_TIME] = delays[field.name] // 1000
    return schema


def _times(relation: Relation) -> tuple[Watermark, ...]:
    """The columns by which rows can have event time. A join has two where its rows have none of their own."""
    if isinstance(relation, Join):
        return relation.own_times or tuple(filter(None, [relation.event_time]))
    return () if relation.event_time is None else (relation.event_time,)


def _window_name(relation: Relation) -> str | None:
    window = relation.window
    return None if window is None or isinstance(window, CountWindow) else window.name


def _event_time(relations: Sequence[Relation], made: DataFrame) -> Watermark | None:
    """That of the operators' rows, where Spark still knows its column, or that of a window's last moment."""
    delays = [max(time.delay for time in _times(each)) for each in relations if _times(each)]
    known = [field for field in made.schema.fields if _EVENT_TIME in field.metadata]
    found = [field for field in fields_of(StructType(known)) if field.type.is_time]
    return Watermark(found[0], max(delays)) if len(delays) == len(relations) and len(found) == 1 else None


def _window(relations: Sequence[Relation], given: Sequence[DataFrame], made: DataFrame) -> AnyWindow | None:
    """The window that rows still come with: where it is their event time, and one column of what was made."""
    first, name = relations[0], _window_name(relations[0])
    if name is None or _event_time(relations, made) is not None:
        return None
    if any(each.event_time is None or not _alike(each.window, first.window) for each in relations):
        return None
    own = plan_of(given[0]).output[given[0].columns.index(name)]
    found = [each.name for each in passed_on(plan_of(made), own)]
    assert first.window is not None
    return replace(first.window, name=found[0]) if len(found) == 1 and made.columns.count(found[0]) == 1 else None


def _alike(window: AnyWindow | None, other: AnyWindow | None) -> bool:
    """Whether both are the same windows of time, whatever the columns are called that they are over."""
    if window is None or isinstance(window, CountWindow) or type(window) is not type(other):
        return False
    return replace(window, time_column="", name="") == replace(other, time_column="", name="")


def _as_bounds(field: Field) -> Field:
    bounds = DataType(str(field.type)).bounds
    assert bounds is not None
    return Field(field.name, bounds)


def _checked(made: object, label: str) -> DataFrame:
    if not isinstance(made, DataFrame):
        raise AnalysisError(f"{label}: the function must give a DataFrame, but gave {type(made).__name__}")
    if made.isStreaming:
        raise AnalysisError(
            f"{label}: the function must use the DataFrame that it is given, and nothing that streams: join a static "
            f"table, or unite the streams before an operator"
        )
    return made
