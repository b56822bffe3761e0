"""The physical plan: what the driver, the tasks and the servers do for one query. Frozen; made once a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.api.definition import QueryDefinition
from tailrace.api.options import Changelog, Combine, Options
from tailrace.api.relations import OutputMode, Relation, chain
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.kind import Input
from tailrace.operators.planning.store_choice import StoreChoice
from tailrace.operators.registry import description_of, inputs_of, plan_operator
from tailrace.operators.spec import OperatorSpec
from tailrace.state.tuning import SpillTuning, Tuning


@dataclass(frozen=True)
class Stage:
    """One operator of a chain and the store it is kept in.

    ``lag``: how far its watermark is behind the first one's, since operators before it may emit rows so old.
    """

    operator: OperatorSpec
    store: StoreChoice
    lag: Micros


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
    for wrong in [stage.operator.why_not_recordable() for stage in stages] if recording else []:
        if wrong is not None:
            raise AnalysisError(f'{wrong}; remove the option "recordAccesses"')
    return PhysicalPlan(
        stages=stages,
        inputs=inputs_of(chain(relation)[0], stages[0].operator),
        # With combining, a partial of many rows would be recorded as one access.
        options=replace(options, combine=Combine.OFF) if recording else options,
    )


def _stages(relations: tuple[Relation, ...], output_mode: OutputMode, options: Options) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    lag: int | None = 0
    # Operators before the last give rows that are final.
    modes = [*[OutputMode.APPEND] * (len(relations) - 1), output_mode]
    asked = zip(relations, modes, strict=True)
    specs = _narrowed([plan_operator(*each, number, options.shards) for number, each in enumerate(asked)])
    if options.changelog is Changelog.ON:
        specs[-1] = specs[-1].with_changelog()
    for spec in specs:
        if spec.watermarked and lag is None:
            raise AnalysisError(
                f"{spec.name} has a watermark, but rows of {stages[-1].operator.name} may come with event times as old "
                "as they like: give the join a ttl, which bounds how long a row waits for a match"
            )
        stages.append(Stage(spec, description_of(spec).store(spec), Micros(lag or 0)))
        lag = None if lag is None or spec.output_delay is None else lag + spec.output_delay
    return tuple(stages)


def _narrowed(specs: Sequence[OperatorSpec]) -> list[OperatorSpec]:
    """The operators of a chain: rows bring only what the next operator reads of them."""
    chained: list[OperatorSpec] = []
    for spec in reversed(specs):
        chained.insert(0, spec.narrowed(chained[0].reads) if chained else spec)
    return chained
