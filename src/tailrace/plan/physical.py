"""The physical plan: what the driver, the tasks and the servers do for one query. Frozen; made once a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.api.definition import QueryDefinition
from tailrace.api.options import Combine, Options
from tailrace.api.relations import (
    Aggregation,
    Deduplication,
    Join,
    Lookup,
    OutputMode,
    Process,
    Ranking,
    Relation,
    Watermark,
    chain,
)
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.accesses.recordable import why_not_recordable
from tailrace.operators.aggregate.planning import plan_aggregation
from tailrace.operators.dedup.planning import narrowed, plan_deduplication
from tailrace.operators.join.planning import plan_join
from tailrace.operators.lookup.planning import plan_lookup
from tailrace.operators.process.planning import plan_process
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.top_n.planning import plan_ranking
from tailrace.plan.store_choice import StoreChoice, choose_store
from tailrace.state.tuning import SpillTuning, Tuning
from tailrace.types import Field


@dataclass(frozen=True)
class Stage:
    """One operator of a chain and the store it is kept in.

    ``lag``: how far its watermark is behind the first one's, since operators before it may emit rows so old.
    """

    operator: OperatorSpec
    store: StoreChoice
    lag: Micros


@dataclass(frozen=True)
class Input:
    """One of the streams that the first operator reads.

    ``columns``: all that is read of it, in its own order. ``watermark``: None where there is none.
    """

    columns: tuple[Field, ...]
    watermark: Watermark | None


@dataclass(frozen=True)
class PhysicalPlan:
    """A chain of operators and how it is run. The first takes the source's rows, the last gives the sink its own."""

    stages: tuple[Stage, ...]
    inputs: tuple[Input, ...]
    options: Options
    commit_reason: str = ""  # why it is not the commit that was asked for

    @property
    def operator(self) -> OperatorSpec:
        """The first one, which ingests."""
        return self.stages[0].operator

    @property
    def last(self) -> OperatorSpec:
        """The one whose rows the sink gets."""
        return self.stages[-1].operator

    @property
    def shards(self) -> int:
        return self.operator.shards

    @property
    def tuning(self) -> Tuning:
        """How the stores of every server use memory and disk."""
        options, spilled = self.options, self.options.spilled
        return Tuning(
            read_batch_ratio=options.read_batch_ratio,
            max_space_amplification=options.max_space_amplification,
            spilled=SpillTuning(
                policy=spilled.policy.value,
                prefetch=spilled.prefetch.value,
                reads=spilled.reads.value,
                read_s=spilled.read_time / 1e6,
                depth=spilled.read_depth,
            ),
        )

    @property
    def delays(self) -> tuple[Micros, ...] | None:
        """How far the watermark trails the largest event time, by input; None: there is no watermark."""
        given = tuple(each.watermark.delay for each in self.inputs if each.watermark is not None)
        return given if len(given) == len(self.inputs) else None

    @property
    def output_mode(self) -> OutputMode:
        return OutputMode.UPDATE if self.last.emit_changed else OutputMode.APPEND


def plan_query(query: QueryDefinition) -> PhysicalPlan:
    """The plan of a query that is to be started."""
    return plan_relation(query.relation, query.output_mode, query.options)


def plan_relation(relation: Relation, output_mode: OutputMode, options: Options) -> PhysicalPlan:
    """The plan of a relation, before a sink and a checkpoint are chosen."""
    stages = _stages(chain(relation), output_mode, options)
    recording = options.record_folder is not None
    for wrong in [why_not_recordable(stage.operator) for stage in stages] if recording else []:
        if wrong is not None:
            raise AnalysisError(f'{wrong}; remove the option "recordAccesses"')
    return PhysicalPlan(
        stages=stages,
        inputs=_inputs(chain(relation)[0], stages[0].operator),
        # With combining, a partial of many rows would be recorded as one access.
        options=replace(options, combine=Combine.OFF) if recording else options,
    )


def _stages(relations: tuple[Relation, ...], output_mode: OutputMode, options: Options) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    lag: int | None = 0
    # Operators before the last give rows that are final.
    modes = [*[OutputMode.APPEND] * (len(relations) - 1), output_mode]
    asked = zip(relations, modes, strict=True)
    for spec in narrowed([_operator(*each, number, options.shards) for number, each in enumerate(asked)]):
        if spec.watermarked and lag is None:
            raise AnalysisError(
                f"{spec.name} has a watermark, but rows of {stages[-1].operator.name} may come with event times as old "
                "as they like: give the join a ttl, which bounds how long a row waits for a match"
            )
        stages.append(Stage(spec, choose_store(spec), Micros(lag or 0)))
        lag = None if lag is None or spec.output_delay is None else lag + spec.output_delay
    return tuple(stages)


def _operator(relation: Relation, output_mode: OutputMode, number: int, shards: int) -> OperatorSpec:
    suffix = f"-{number + 1}" if number else ""
    match relation:
        case Aggregation():
            return plan_aggregation(relation, output_mode, shards, f"aggregate{suffix}")
        case Join():
            return plan_join(relation, shards, f"join{suffix}")
        case Lookup():
            return plan_lookup(relation, shards, f"lookup{suffix}")
        case Deduplication():
            return plan_deduplication(relation, shards, f"deduplicate{suffix}")
        case Ranking():
            return plan_ranking(relation, output_mode, shards, f"top{suffix}")
        case Process():
            return plan_process(relation, shards, f"process{suffix}")
    raise AssertionError(f"no plan for {relation!r}")


def _inputs(relation: Relation, operator: OperatorSpec) -> tuple[Input, ...]:
    match relation:
        case Join():
            sides = (relation.left, relation.right)
            own = [tuple(field for field in side.columns if field.name in operator.reads) for side in sides]
            return tuple(
                Input(_with_time((*side.keys, *columns), side.watermark), side.watermark)
                for side, columns in zip(sides, own, strict=True)
            )
        case Aggregation() | Deduplication() | Lookup() | Ranking() | Process():
            read = tuple(field for field in relation.schema if field.name in operator.reads)
            return (Input(read, relation.watermark),)
    raise AssertionError(f"no inputs of {relation!r}")


def _with_time(columns: tuple[Field, ...], watermark: Watermark | None) -> tuple[Field, ...]:
    return columns if watermark is None or watermark.column in columns else (*columns, watermark.column)
