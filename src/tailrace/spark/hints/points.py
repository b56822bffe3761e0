"""Points of the streaming plan from which hints come: filters that keep every row, and see the key columns alone.

The condition is ``rand() < 2.0 OR hint(key columns)``. The first part is always true, so that no row is lost whatever
the function gives; and what is not deterministic keeps Spark from moving the filter, or others past it. Spark's
optimizer knows that ``rand`` is below 2 and drops the filter with its function, unless that rule is switched
off: so a filter costs nothing until ``spark.sql.optimizer.excludedRules`` names ``OptimizeRand``
(``point_conf``), and moving the lookahead is a setting that Spark reads when it plans the next epoch. A Spark without
that rule keeps the filters, which do nothing without instructions for their point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.server.transport.server_config import Access
from tailrace.spark.sources.inspection import carries
from tailrace.spark.sources.schema import fields_of, quoted
from tailrace.spark.sources.transforms import Transformed
from tailrace.spark.tasks.hint_sender import HintPoint, sender_of
from tailrace.spark.tasks.worker import tune_worker
from tailrace.state.cache.frequency_sketch import SketchSize

SOURCE = "source"
INGEST = "ingest"
RULES_CONF = "spark.sql.optimizer.excludedRules"
_RULE = "org.apache.spark.sql.catalyst.optimizer.OptimizeRand"


def placed(source: Transformed, points: Sequence[HintPoint], access: Access) -> DataFrame:
    """The rows of a source, with a filter at every point."""
    named = {point.name: point for point in points}
    frame = _filtered(source.base, named.get(SOURCE), access)
    for number, step in enumerate(source.steps, 1):
        frame = _filtered(step(frame), named.get(_after(number)), access)
    return frame


def points_of(
    source: Transformed, specs: Sequence[HintSpec], shuffled: bool, sketch: SketchSize
) -> tuple[HintPoint, ...]:
    """From the source on; the last one only where a shuffle follows it: else the ingest task sees its rows as early."""
    found = []
    # Arrow functions of columns came with Spark 4.1.
    frames = source.frames if shuffled else source.frames[:-1]
    for number, frame in enumerate(frames if hasattr(F, "arrow_udf") else ()):
        there = [
            spec
            for spec in specs
            if set(spec.columns) <= set(fields_of(frame.schema))
            and all(carries(frame, source.frames[-1], by.name) for by in spec.found_by)
        ]
        if there:
            name = _after(number) if number else SOURCE
            found.append(HintPoint(name, tuple(spec.to_json() for spec in there), sketch))
    return tuple(found)


def point_conf(base: str, on: bool) -> str:
    """The optimizer rules to leave out while filters at points are to stay in the plan."""
    return ",".join(filter(None, (base, _RULE))) if on else base


def _after(number: int) -> str:
    return f"transform {number}"


def _filtered(frame: DataFrame, point: HintPoint | None, access: Access) -> DataFrame:
    if point is None:
        return frame
    names = list(dict.fromkeys(field.name for spec in map(HintSpec.from_json, point.specs) for field in spec.columns))
    arrow_udf: Any = F.arrow_udf  # its stub lacks the form that infers a function's kind from its annotations
    hint = arrow_udf(_function(point, access, names), "boolean").asNondeterministic()
    return frame.where((F.rand() < 2.0) | hint(*(F.col(quoted(name)) for name in names)))


def _function(point: HintPoint, access: Access, names: Sequence[str]) -> Callable[..., Iterator[pa.Array]]:
    def hint(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        sender = sender_of(point, access)
        for batch in batches:
            columns = batch if isinstance(batch, tuple) else (batch,)  # Spark gives a single column as it is
            if sender is not None:
                sender.rows(dict(zip(names, columns, strict=True)), len(columns[0]))
            yield pa.repeat(pa.scalar(True), len(columns[0]))
        if sender is not None:
            sender.finish()
            sender.wait_received()
        tune_worker()

    return hint
