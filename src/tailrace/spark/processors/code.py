"""A user's per-key function and its schemas to what state servers call: the driver's part.

Whoever has the function (the own API, or the reader of a plan) makes its code here, and its relation with
``api.checks.stateful_processor.stateful_processing``.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType

from tailrace.api.processors import ProcessorCode, StateKind, StateVariable, TimeMode
from tailrace.errors import AnalysisError
from tailrace.operators.output import schema_of
from tailrace.operators.planning.user_functions import packed
from tailrace.spark.processors.calls import GROUP_STATE, GroupStateCalls, ProcessorCalls
from tailrace.spark.processors.declared import declared_states
from tailrace.spark.sources.schema import fields_of
from tailrace.types import Field

TIMEOUTS = {
    GroupStateTimeout.NoTimeout: TimeMode.NONE,
    GroupStateTimeout.ProcessingTimeTimeout: TimeMode.PROCESSING,
    GroupStateTimeout.EventTimeTimeout: TimeMode.EVENT,
}


def struct_of(schema: object, what: str = "schema") -> StructType:
    if isinstance(schema, str):
        try:
            schema = StructType.fromDDL(schema)
        except PySparkException as error:
            raise AnalysisError(f"{what} {schema!r} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(schema, StructType):
        raise AnalysisError(f"{what} takes a DDL string ('a bigint, b string') or a StructType, but got {schema!r}")
    return schema


def _known(outputs: tuple[Field, ...]) -> tuple[Field, ...]:
    """Others are refused by name when the relation is made."""
    return tuple(field for field in outputs if (field.type.element or field.type).kind is not None)


def timezone_of(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.sql.session.timeZone"))


def processor_code(
    processor: object,
    output: object,
    time_mode: TimeMode,
    timezone: str,
    *,
    pandas: bool,
    parse: Callable[[object], StructType] = struct_of,
) -> ProcessorCode:
    """Of a ``StatefulProcessor``. ``parse``: how schemas that are texts are read."""
    title = "transformWithStateInPandas" if pandas else "transformWithState"
    code = packed(processor)
    states = declared_states(code, parse, title)
    outputs = fields_of(parse(output))
    timed = time_mode is not TimeMode.NONE
    calls = ProcessorCalls(title, code, states.schemas, schema_of(_known(outputs)), timezone, pandas, timed)
    return ProcessorCode(title, calls, tuple(states.variables), outputs)


def group_state_code(
    function: object,
    output: object,
    state: object,
    timeout: str,
    timezone: str,
    *,
    watermarked: bool,
    parse: Callable[[object], StructType] = struct_of,
) -> ProcessorCode:
    """Of a function of a ``GroupState``."""
    title = "applyInPandasWithState"
    if not callable(function):
        raise AnalysisError(f"{title} takes a function, but got {function!r} ({type(function).__name__})")
    if timeout not in TIMEOUTS:
        raise AnalysisError(f"{title}: timeoutConf must be one of {', '.join(TIMEOUTS)}, but is {timeout!r}")
    schema, outputs = parse(state), fields_of(parse(output))
    calls = GroupStateCalls(packed(function), schema, schema_of(_known(outputs)), timezone, timeout, watermarked)
    variables = (StateVariable(GROUP_STATE, StateKind.VALUE, fields_of(schema)),)
    return ProcessorCode(title, calls, variables, outputs)
