"""A join of two streams to the operator that a state server runs for it."""

from __future__ import annotations

from tailrace.api.relations import Join, OutputMode, ValidTo, Watermark, Within
from tailrace.api.windows import Window
from tailrace.errors import AnalysisError
from tailrace.operators.join.spec import LEFT, RIGHT, How, JoinKind, JoinSpec
from tailrace.operators.kind import Input
from tailrace.operators.planning.windows import plan_time_window
from tailrace.operators.spec import VALUES_MAX, OperatorSpec
from tailrace.types import TIMESTAMP, Field


def plan_join(join: Join, output_mode: OutputMode, shards: int, name: str) -> JoinSpec:
    condition, watermark = join.condition, join.left.watermark
    times = [side.watermark.column.name for side in (join.left, join.right) if side.watermark is not None]
    kinds = {Within: JoinKind.INTERVAL, Window: JoinKind.WINDOW, ValidTo: JoinKind.CONTINUOUS}
    spec = JoinSpec(
        name=name,
        keys=join.left.keys,
        left=join.left.columns,
        right=join.right.columns,
        kind=kinds.get(type(condition), JoinKind.TTL),
        how=How(join.how),
        shards=shards,
        watermarked=watermark is not None,
        lower=condition.lower if isinstance(condition, Within) else None,
        upper=condition.upper if isinstance(condition, Within) else None,
        ttl=join.ttl,
        window=plan_time_window(condition) if isinstance(condition, Window) else None,
        window_name=condition.name if isinstance(condition, Window) else "window",
        valid_to=condition.column if isinstance(condition, ValidTo) else None,
        valid_side=RIGHT if isinstance(condition, ValidTo) and condition.of_right else LEFT,
        time_type=TIMESTAMP if watermark is None else watermark.column.type,
        times=(times[0], times[1]) if times else None,
        time_name=join.time_name,
        handed_over=(join.left.handed_over, join.right.handed_over),
    )
    width = len(spec.keys) + len(spec.rows) + 1
    if width > VALUES_MAX:
        raise AnalysisError(
            f"join: a row has {width} columns with those of both sides, and at most {VALUES_MAX} can be kept: select "
            f"what you need first"
        )
    return spec


def both_inputs(join: Join, spec: OperatorSpec) -> tuple[Input, ...]:
    sides = (join.left, join.right)
    own = [tuple(field for field in side.columns if field.name in spec.reads) for side in sides]
    return tuple(
        Input(_with_time((*side.keys, *columns), side.watermark), side.watermark)
        for side, columns in zip(sides, own, strict=True)
    )


def _with_time(columns: tuple[Field, ...], watermark: Watermark | None) -> tuple[Field, ...]:
    return columns if watermark is None or watermark.column in columns else (*columns, watermark.column)
