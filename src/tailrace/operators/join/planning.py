"""A join of two streams to the operator that a state server runs for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tailrace.api.relations import Join, ValidTo, Within
from tailrace.api.windows import Window
from tailrace.errors import AnalysisError
from tailrace.operators.join.spec import LEFT, RIGHT, How, JoinKind, JoinSpec
from tailrace.operators.spec import VALUES_MAX
from tailrace.operators.windows import WindowSpec
from tailrace.types import TIMESTAMP


def plan_join(join: Join, shards: int, name: str) -> JoinSpec:
    condition, watermark = join.condition, join.left.watermark
    times = [side.watermark.column.name for side in (join.left, join.right) if side.watermark is not None]
    kinds = {Within: JoinKind.INTERVAL, Window: JoinKind.WINDOW, ValidTo: JoinKind.CONTINUOUS}
    spec = JoinSpec(
        name=name,
        keys=join.left.keys,
        left=join.left.columns,
        right=join.right.columns,
        kind=kinds.get(type(condition), JoinKind.TTL),
        how=How.LEFT_OUTER if join.outer else How.INNER,
        shards=shards,
        watermarked=watermark is not None,
        lower=condition.lower if isinstance(condition, Within) else None,
        upper=condition.upper if isinstance(condition, Within) else None,
        ttl=join.ttl,
        window=_window(condition) if isinstance(condition, Window) else None,
        window_name=condition.name if isinstance(condition, Window) else "window",
        valid_to=condition.column if isinstance(condition, ValidTo) else None,
        valid_side=RIGHT if isinstance(condition, ValidTo) and condition.of_right else LEFT,
        time_type=TIMESTAMP if watermark is None else watermark.column.type,
        times=(times[0], times[1]) if times else None,
        time_name=join.time_name,
    )
    width = len(spec.keys) + len(spec.rows) + 1
    if width > VALUES_MAX:
        raise AnalysisError(
            f"join: a row has {width} columns with those of both sides, and at most {VALUES_MAX} can be kept: select "
            f"what you need before tailrace.stream(...)"
        )
    return spec


def narrowed_join(join: JoinSpec, reads: Collection[str]) -> JoinSpec:
    """The same for a next operator that reads only these columns: nothing else is read, kept and handed over."""
    needed = {*reads, join.valid_to}
    left, right = (tuple(field for field in side if field.name in needed) for side in (join.left, join.right))
    return replace(join, left=left, right=right)


def _window(window: Window) -> WindowSpec:
    return WindowSpec(window.size, window.slide, window.offset, window.lasts)
