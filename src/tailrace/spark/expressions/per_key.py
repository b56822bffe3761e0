"""What a plan says of PySpark's per-key functions: the function itself, pickled, and how it is to be called."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.types import StructType

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression, items_of, uses
from tailrace.spark.expressions.plans import Node


@dataclass(frozen=True)
class PerKeyFunction:
    """``columns``: what it sees of a row. ``clock``: by which timers or timeouts come up, as Spark names it."""

    function: Any
    keys: list[Expression]
    columns: list[Expression]
    output: StructType
    output_mode: str
    clock: str


@dataclass(frozen=True)
class InitialState:
    """``keys``: how many of the first columns of ``rows`` are keys."""

    rows: Node
    keys: int


@uses("FlatMapGroupsInPandasWithState.functionExpr()")
def group_state_function(node: Node) -> PerKeyFunction:
    java = node._java
    keys = [Expression(each) for each in items_of(java.groupingAttributes())]
    return _function(node, keys, java.timeout())


@uses("FlatMapGroupsInPandasWithState.stateType()")
def group_state_type(node: Node) -> StructType:
    return _struct(node._java.stateType())


@uses("TransformWithStateInPySpark.functionExpr()")
def processor_function(node: Node) -> PerKeyFunction:
    """With the ``StatefulProcessor`` as its function."""
    keys = node.children[0].output[: node._java.groupingAttributesLen()]
    return _function(node, keys, node._java.timeMode())


@uses("TransformWithStateInPySpark.userFacingDataType()")
def is_of_frames(node: Node) -> bool:
    """Whether a processor sees pandas frames, and not rows."""
    kind = str(node._java.userFacingDataType().toString())
    if kind not in ("pandas", "python_row"):
        raise TypeError(f"a processor of {kind}")
    return kind == "pandas"


@uses("TransformWithStateInPySpark.initialState()")
def initial_state(node: Node) -> InitialState | None:
    java = node._java
    return InitialState(node.children[1], java.initGroupingAttrsLen()) if java.hasInitialState() else None


@uses("UpdateEventTimeWatermarkColumn.eventTime()")
def named_event_time(node: Node) -> str:
    return str(node._java.eventTime().name())


def _function(node: Node, keys: list[Expression], clock: Any) -> PerKeyFunction:
    java = node._java
    call = java.functionExpr()
    function = _unpickled(call.func().command().unsafeArray())
    processor = getattr(getattr(function, "__self__", None), "_stateful_processor", function)
    columns = [Expression(each) for each in items_of(call.children())]
    output = _struct(java.schema())
    return PerKeyFunction(processor, keys, columns, output, str(java.outputMode().toString()), str(clock.toString()))


def _unpickled(command: bytes) -> Any:
    try:
        function, _ = cloudpickle.loads(command)
    except Exception as error:
        raise AnalysisError(
            f"the function cannot be read from the plan ({error}): it is larger than a megabyte, or uses a broadcast "
            f"variable; read what it needs where it is called, or write the query with tailrace.stream(...)"
        ) from error
    return function


def _struct(java: Any) -> StructType:
    return StructType.fromJson(json.loads(str(java.json())))
