"""What Spark makes of operators' outputs within an epoch, without a state of its own.

When the query is planned, a hop's function is called with an empty DataFrame, to know the columns of what it gives.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.api.relations import Relation, SparkHop, Watermark
from tailrace.api.windows import CountWindow
from tailrace.errors import AnalysisError
from tailrace.spark.sources.schema import fields_of, schema_of
from tailrace.types import Field, window_of

_EVENT_TIME = "spark.watermarkDelayMs"
_TIME_WINDOW = "spark.timeWindow"
"""How Spark marks these columns. The marks stay where a column is renamed, and where ``window_time`` is taken of it."""


def hop_behind(spark: SparkSession, relation: Relation, function: Callable[..., object], label: str) -> SparkHop:
    """The hop with what the function makes of an operator's rows; behind a hop, one that does both."""
    given = spark.createDataFrame([], schema=output_schema_of(relation))
    try:
        made = _checked(function(given), label)
    except PySparkException as error:
        raise AnalysisError(f"{label}: {str(error).splitlines()[0]}") from error
    fields, event_time = fields_of(made.schema), _event_time(relation, made)
    if not isinstance(relation, SparkHop):
        return SparkHop((relation,), function, fields, label, event_time)
    before = relation

    def both(*outputs: DataFrame) -> object:
        return function(made_by_hop(before, *outputs))

    return SparkHop(before.inputs, both, fields, f"{before.label}, {label}", event_time)


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


def output_schema_of(relation: Relation) -> StructType:
    """The columns of a relation, as a hop sees them: a window is a struct of its bounds."""
    windowed = _window_name(relation)
    fields = relation.fields
    schema = schema_of(Field(each.name, window_of(each.type)) if each.name == windowed else each for each in fields)
    return marked(schema, relation)


def marked(schema: StructType, relation: Relation) -> StructType:
    """The schema of an operator's rows with Spark's marks of the window and of event time."""
    windowed, time = _window_name(relation), relation.event_time
    for field in schema.fields:
        if field.name == windowed:
            field.metadata[_TIME_WINDOW] = True
        if time is not None and field.name == time.column.name:
            field.metadata[_EVENT_TIME] = time.delay // 1000
    return schema


def _window_name(relation: Relation) -> str | None:
    window = relation.window
    return None if window is None or isinstance(window, CountWindow) else window.name


def _event_time(relation: Relation, made: DataFrame) -> Watermark | None:
    """That of the operator's rows, where Spark still knows its column, or that of a window's last moment."""
    time = relation.event_time
    marked = [field for field in made.schema.fields if _EVENT_TIME in field.metadata]
    found = [field for field in fields_of(StructType(marked)) if field.type.is_time]
    return Watermark(found[0], time.delay) if time is not None and len(found) == 1 else None


def _checked(made: object, label: str) -> DataFrame:
    if not isinstance(made, DataFrame):
        raise AnalysisError(f"{label}: the function must give a DataFrame, but gave {type(made).__name__}")
    if made.isStreaming:
        raise AnalysisError(
            f"{label}: the function must use the DataFrame that it is given, and nothing that streams: join a static "
            f"table, or unite the streams before an operator"
        )
    return made
