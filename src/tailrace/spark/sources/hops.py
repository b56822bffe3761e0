"""What Spark makes of operators' outputs within an epoch, without a state of its own.

When the query is planned, a hop's function is called with an empty DataFrame, to know the columns of what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def hop_over(
    spark: SparkSession, relations: Sequence[Relation], function: Callable[..., object], label: str
) -> SparkHop:
    """The hop with what the function makes of the rows of operators."""
    given = [spark.createDataFrame([], schema=output_schema_of(each)) for each in relations]
    try:
        made = _checked(function(*given), label)
    except PySparkException as error:
        raise AnalysisError(f"{label}: {str(error).splitlines()[0]}") from error
    return SparkHop(tuple(relations), function, fields_of(made.schema), label, _event_time(relations, made))


def hop_behind(spark: SparkSession, relation: Relation, function: Callable[..., object], label: str) -> SparkHop:
    """The hop with what the function makes of an operator's rows; behind a hop, one that does both."""
    hop = hop_over(spark, [relation], function, label)
    if not isinstance(relation, SparkHop):
        return hop
    before = relation

    def both(*outputs: DataFrame) -> object:
        return function(made_by_hop(before, *outputs))

    return SparkHop(before.inputs, both, hop.fields, f"{before.label}, {label}", hop.event_time)


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


def _event_time(relations: Sequence[Relation], made: DataFrame) -> Watermark | None:
    """That of the operators' rows, where Spark still knows its column, or that of a window's last moment."""
    delays = [each.event_time.delay for each in relations if each.event_time is not None]
    marked = [field for field in made.schema.fields if _EVENT_TIME in field.metadata]
    found = [field for field in fields_of(StructType(marked)) if field.type.is_time]
    return Watermark(found[0], max(delays)) if len(delays) == len(relations) and len(found) == 1 else None


def _checked(made: object, label: str) -> DataFrame:
    if not isinstance(made, DataFrame):
        raise AnalysisError(f"{label}: the function must give a DataFrame, but gave {type(made).__name__}")
    if made.isStreaming:
        raise AnalysisError(
            f"{label}: the function must use the DataFrame that it is given, and nothing that streams: join a static "
            f"table, or unite the streams before an operator"
        )
    return made
