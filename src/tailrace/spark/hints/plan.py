"""The points of one query from which hints may come, and by operator its candidates. Made once a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tailrace.api.options import Prefetch, Route
from tailrace.api.relations import Join
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.plan.hints import hint_specs
from tailrace.plan.physical import PhysicalPlan
from tailrace.server.transport.server_config import Access
from tailrace.spark.hints.lookahead import STAGING
from tailrace.spark.hints.points import INGEST, placed, points_of
from tailrace.spark.sources.transforms import Transformed, frame_of
from tailrace.spark.tasks.hint_sender import HintPoint
from tailrace.state.cache.frequency_sketch import SketchSize


@dataclass(frozen=True)
class HintPlan:
    """``points``: in the streaming plan, from the source on. ``ingest``: in the tasks that send rows to servers."""

    specs: tuple[HintSpec, ...]
    points: tuple[HintPoint, ...]
    ingest: HintPoint | None
    candidates: Mapping[str, tuple[str, ...]]  # by operator, staging last
    shuffled: bool

    @classmethod
    def of(cls, plan: PhysicalPlan) -> HintPlan:
        first = plan.stages[0].relation
        shuffled = plan.options.route is Route.SHUFFLE
        sketch = SketchSize.of_memory(plan.options.hints.sketch_bytes)
        wanted = plan.options.spilled.prefetch is Prefetch.ON and plan.options.hints.upstream
        able = wanted and plan.linear and not isinstance(first, Join) and len(plan.inputs) == 1
        specs = tuple(spec for spec in hint_specs(plan) if spec is not None) if able else ()
        points: tuple[HintPoint, ...] = ()
        ingest = None
        if specs:
            points = points_of(_transformed(first.source), specs, shuffled, sketch)
            read = set(plan.inputs[0].columns)
            here = [spec for spec in specs if set(spec.columns) <= read]
            ingest = HintPoint(INGEST, tuple(spec.to_json() for spec in here), sketch) if here else None
        everywhere = [*points, *([ingest] if ingest is not None else [])]
        candidates = {
            stage.operator.name: (
                *(point.name for point in everywhere if _tells(point, stage.operator.name)),
                STAGING,
            )
            for stage in plan.stages
        }
        return cls(specs, points, ingest, candidates, shuffled)

    def placed(self, source: object, access: Access) -> DataFrame:
        """The rows of the source, with a filter at every point."""
        if not self.points:
            return frame_of(source)
        return placed(_transformed(source), self.points, access)


def _transformed(source: object) -> Transformed:
    return source if isinstance(source, Transformed) else Transformed((), (frame_of(source),))


def _tells(point: HintPoint, operator: str) -> bool:
    return any(HintSpec.from_json(text).operator == operator for text in point.specs)
