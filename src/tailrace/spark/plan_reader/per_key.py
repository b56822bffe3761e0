"""``transformWithState``, ``transformWithStateInPandas`` and ``applyInPandasWithState`` become a stateful processing.

The user's function sees a row's columns by the names that they have in the query: here they are no numbers. A key that
is an expression is a column beside them, which the function does not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace.api.checks.stateful_processor import output_mode_of, stateful_processing
from tailrace.api.processors import ProcessorCode, TimeMode
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.spark.expressions import per_key
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.per_key import PerKeyFunction
from tailrace.spark.expressions.plans import Node
from tailrace.spark.plan_reader.reading import Made, Reading
from tailrace.spark.processors.code import TIMEOUTS, group_state_code, processor_code, timezone_of
from tailrace.spark.processors.initial_state import initial_rows

_CLOCKS = {"NoTime": TimeMode.NONE, "ProcessingTime": TimeMode.PROCESSING, "EventTime": TimeMode.EVENT}


def read_group_state(node: Node, reading: Reading) -> Made:
    asked = per_key.group_state_function(node)
    rows = _Rows(node.child, asked, reading)
    code = group_state_code(
        asked.function,
        asked.output,
        per_key.group_state_type(node),
        asked.clock,
        timezone_of(reading.spark),
        watermarked=rows.stream.watermark is not None,
    )
    return rows.made(node, code, asked, TIMEOUTS[asked.clock], timeouts=asked.clock != "NoTimeout")


def read_processor(node: Node, reading: Reading) -> Made:
    return _processor(node, node, reading, None)


def read_processor_with_event_time(node: Node, reading: Reading) -> Made:
    """With ``eventTimeColumnName``, which becomes a node of its own."""
    if node.child.kind != "TransformWithStateInPySpark":
        raise AnalysisError(f"the event time of a {node.child.kind} is named, and only that of a processor can be")
    return _processor(node.child, node, reading, per_key.named_event_time(node))


def _processor(node: Node, top: Node, reading: Reading, time_name: str | None) -> Made:
    asked = per_key.processor_function(node)
    pandas = per_key.is_of_frames(node)
    clock = _CLOCKS[asked.clock]
    code = processor_code(asked.function, asked.output, clock, timezone_of(reading.spark), pandas=pandas)
    rows = _Rows(node.children[0], asked, reading)
    initial = per_key.initial_state(node)
    if initial is not None:
        frame = initial.rows.frame(reading.spark)
        code = replace(code, initial=initial_rows(frame, rows.keys, code.title))
    return rows.made(top, code, asked, clock, time_name=time_name)


class _Rows:
    """The rows that a function gets, as a stream."""

    def __init__(self, plan: Node, asked: PerKeyFunction, reading: Reading) -> None:
        columns = reading.columns()
        names = _names(asked.columns)
        for column in asked.columns:
            columns.make(column.column(), column.text, names[column.id])
            columns.check(column)
        for number, key in enumerate(asked.keys):
            if key.id not in names:
                names[key.id] = columns.make(key.column(), key.text, _free(reading.name("k", number), names))
                columns.check(key)
        time = next((each for each in plan.output if each.delay_ms is not None and each.id in names), None)
        timed = None
        if time is not None and time.delay_ms is not None:
            timed = names[time.id], time.delay_ms
        self.stream: Stream = reading.stream(plan, columns, timed)
        self._fields = {field.name: field for field in self.stream.schema}
        nested = next((field for field in self.stream.schema if field.type.packed is not None), None)
        if nested is not None:
            raise AnalysisError(
                f"column {nested.name!r} is a {nested.type}, which is not supported in the rows of a function: leave "
                f"it out, or make columns of what the function needs"
            )
        self.keys = tuple(dict.fromkeys(self._fields[names[key.id]] for key in asked.keys))
        self._seen = tuple(self._fields[names[column.id]] for column in asked.columns)

    def made(
        self,
        node: Node,
        code: ProcessorCode,
        asked: PerKeyFunction,
        clock: TimeMode,
        *,
        timeouts: bool = False,
        time_name: str | None = None,
    ) -> Made:
        relation = stateful_processing(
            self.stream.source,
            self.stream.schema,
            self.stream.watermark,
            self.keys,
            code,
            output_mode_of(asked.output_mode, code.title),
            clock,
            timeouts=timeouts,
            time_name=time_name,
            seen=self._seen,
        )
        leaf = zip(node.output, (field.name for field in code.outputs), strict=True)
        return Made(relation, tuple(leaf), None)


def _names(columns: Sequence[Expression]) -> dict[int, str]:
    """By the columns' ids."""
    known: set[str] = set()
    for column in columns:
        if not column.is_attribute:
            raise AnalysisError(f"{column.text}: a function of the rows of a key sees columns, and no expressions")
        if column.name.lower() in known:
            raise AnalysisError(
                f"a function of the rows of a key sees two columns that are called {column.name!r}: rename one"
            )
        known.add(column.name.lower())
    return {column.id: column.name for column in columns}


def _free(name: str, names: dict[int, str]) -> str:
    taken = {each.lower() for each in names.values()}
    while name in taken:
        name = f"_{name}"
    return name
