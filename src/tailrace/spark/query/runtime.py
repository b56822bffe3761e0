"""What the API needs of Spark: columns and rows of the user's streams, and how a query is explained and started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.api.columns import Named
from tailrace.api.definition import QueryDefinition
from tailrace.api.options import Options
from tailrace.api.processors import ProcessorCode, TimeMode
from tailrace.api.relations import OutputMode, PassThrough, Relation, SparkHop
from tailrace.api.runtime import Projected
from tailrace.api.stream import Stream
from tailrace.api.tables import LookupTable
from tailrace.errors import AnalysisError
from tailrace.plan.explain import explain
from tailrace.plan.physical import plan_relation
from tailrace.spark.hints.lookahead import Lookahead, lookahead_lines
from tailrace.spark.hints.plan import HintPlan
from tailrace.spark.processors.code import TIMEOUTS, group_state_code, processor_code, struct_of, timezone_of
from tailrace.spark.processors.initial_state import initial_of
from tailrace.spark.query.query import StreamingQuery
from tailrace.spark.query.start import policy_of, read_once_of, with_commit
from tailrace.spark.query.stream_manager import replace_stream_manager
from tailrace.spark.query.with_servers import start_with_servers
from tailrace.spark.query.without_servers import start_without_servers
from tailrace.spark.servers.losses import RetryBudget
from tailrace.spark.sources.computed import with_columns
from tailrace.spark.sources.hops import hop_over
from tailrace.spark.sources.inspection import check_source, kept_time
from tailrace.spark.sources.projection import Asked, Projection
from tailrace.spark.sources.schema import fields_of
from tailrace.spark.sources.static_join import enriched
from tailrace.spark.sources.transforms import Transformed, frame_of, then, transformed
from tailrace.types import Field


def stream(source: DataFrame) -> Stream:
    """A stream of a streaming DataFrame's rows, to be grouped and aggregated by Tailrace.

    Everything stateless (``select``, ``where``, ``withColumn``, joins with static tables) may stand before it, and be
    said of the stream itself, in the same words.
    """
    frame = check_source(source)
    return Stream(frame, fields_of(frame.schema), SparkRuntime(frame.sparkSession))


class SparkRuntime:
    """Starts and explains queries in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def ansi(self) -> bool:
        return str(self._spark.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"

    def fields(self, schema: object) -> tuple[Field, ...]:
        return fields_of(struct_of(schema))

    def processor(self, processor: object, output: object, time_mode: TimeMode, *, pandas: bool) -> ProcessorCode:
        return processor_code(processor, output, time_mode, timezone_of(self._spark), pandas=pandas)

    def initial_state(self, grouped: object, keys: Sequence[Field], title: str) -> Callable[[], object]:
        return initial_of(grouped, keys, title)

    def group_state(
        self, function: object, output: object, state: object, timeout: str, *, watermarked: bool
    ) -> tuple[ProcessorCode, TimeMode]:
        code = group_state_code(function, output, state, timeout, timezone_of(self._spark), watermarked=watermarked)
        return code, TIMEOUTS[timeout]

    def table_fields(self, table: LookupTable) -> tuple[Field, ...]:
        if table.schema is not None:
            return self.fields(table.schema)
        try:
            return fields_of(self._spark.read.parquet(str(table.options["path"])).schema)
        except PySparkException as error:
            raise AnalysisError(f"{table.shown} cannot be read: {str(error).splitlines()[0]}") from error

    def enriched(
        self, source: object, table: object, on: Sequence[object], how: str
    ) -> tuple[object, tuple[Field, ...]]:
        if not isinstance(source, Transformed):
            source = enriched(frame_of(source), table, on, how)
        else:
            source = then(source, lambda frame: enriched(frame, table, on, how))
        return source, fields_of(frame_of(source).schema)

    def transformed(
        self, source: object, function: Callable[..., object], time: str | None, label: str
    ) -> tuple[object, tuple[Field, ...], str | None]:
        made = transformed(source, function, label)
        name = None if time is None else kept_time(frame_of(source), frame_of(made), time)
        return made, fields_of(frame_of(made).schema), name

    def projected(
        self,
        source: object,
        schema: Sequence[Field],
        time: str | None,
        groups: Sequence[object],
        aggregates: Sequence[object],
        *,
        whole: bool,
    ) -> Projected:
        asked = Asked(source, schema, time, groups, aggregates)
        return Projection(self._spark, asked, self.ansi).made(whole=whole)

    def with_columns(
        self, source: object, schema: Sequence[Field], columns: Sequence[object], call: str, *, beside: bool
    ) -> tuple[object, tuple[Field, ...], tuple[Named, ...]]:
        return with_columns(self._spark, source, schema, columns, call, beside=beside)

    def hop(self, relation: Relation, function: Callable[..., object], label: str, *others: Relation) -> SparkHop:
        return hop_over(self._spark, (relation, *others), function, label)

    def rows(self, source: object) -> object:
        return frame_of(source)

    def explain(self, relation: Relation, output_mode: OutputMode, options: Options) -> str:
        plan = replace(plan_relation(relation, output_mode, options), policy=policy_of(self._spark))
        text = explain(with_commit(plan, read_once_of(plan)))
        if plan.passed is not None:
            return text
        points = HintPlan.of(plan).candidates
        return "\n".join([text, *lookahead_lines({name: Lookahead(found) for name, found in points.items()})])

    def start(self, query: QueryDefinition) -> StreamingQuery:
        replace_stream_manager()
        budget = RetryBudget(query.options.recovery_timeout / 1e6)
        start = start_without_servers if isinstance(query.relation, PassThrough) else start_with_servers
        run = partial(start, self._spark, query, budget)
        return StreamingQuery(run(), run, budget)
