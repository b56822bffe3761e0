"""The physical plan: what the driver, the tasks and the servers do for one query. Frozen; made once a run.

A query's operators are its *stages*, each behind those whose rows it gets. A stage gets rows from tasks that ingest the
user's streams, from the stage before by an exchange between servers, or from several by way of Spark (``SparkHop``).
Tasks ingest in the streaming plan; rows that come by way of Spark are ingested by a job of their own within the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.api.definition import QueryDefinition
from tailrace.api.options import Changelog, Combine, Options, WatermarkPolicy, WatermarkRule
from tailrace.api.relations import Join, OutputMode, PassThrough, Relation, SparkHop, United, operators_of, sources_of
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.kind import Input
from tailrace.operators.pattern import StoreChoice
from tailrace.operators.registry import description_of, inputs_of, plan_operator
from tailrace.operators.spec import OperatorSpec
from tailrace.state.tuning import SpillTuning, Tuning


@dataclass(frozen=True)
class Stage:
    """An operator and the store it is kept in.

    ``lag``: how far its watermark is behind that of the streams, since operators before it may emit rows so old.
    ``inputs``: by stream that the operator reads, which of the plan's inputs that is (several, where its watermark goes
    by several clocks); None: rows of stages ``before``.
    """

    operator: OperatorSpec
    store: StoreChoice
    lag: Micros
    relation: Relation
    inputs: tuple[int | None, ...]
    before: tuple[int, ...] = ()

    @property
    def ingests(self) -> bool:
        """Whether tasks of the streaming plan send it rows."""
        return any(number is not None for number in self.inputs)

    @property
    def by_spark(self) -> bool:
        """Whether Spark brings it the rows of the stages before, and not an exchange between servers."""
        return bool(self.before) and not _exchanged(self.relation)


@dataclass(frozen=True)
class PhysicalPlan:
    """A query's operators and how they are run. Some give the sink its rows, by way of ``hop`` or as they are.

    ``passed``: a stream whose rows go to the sink without an operator; then there are no stages, and no state servers.
    """

    stages: tuple[Stage, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[int, ...]  # the stages whose rows the sink gets; several only by way of a hop
    options: Options
    commit_reason: str = ""  # why it is not the commit that was asked for
    hop: SparkHop | None = None
    policy: WatermarkPolicy = WatermarkPolicy.MIN
    passed: PassThrough | None = None

    @property
    def operator(self) -> OperatorSpec:
        """The first one, which ingests."""
        return self.stages[0].operator

    @property
    def last(self) -> OperatorSpec:
        """One whose rows the sink gets; its output mode is the query's."""
        return self.stages[self.outputs[0]].operator

    @property
    def linear(self) -> bool:
        """Whether each stage gets the rows of the one before by an exchange, so that nothing waits for Spark."""
        return len(self.outputs) == 1 and all(
            stage.before == (() if number == 0 else (number - 1,)) and not stage.by_spark
            for number, stage in enumerate(self.stages)
        )

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
        if self.last.complete:
            return OutputMode.COMPLETE
        return OutputMode.UPDATE if self.last.emit_changed else OutputMode.APPEND

    def stage_of(self, relation: Relation) -> Stage:
        return next(stage for stage in self.stages if stage.relation is relation)


def plan_query(query: QueryDefinition) -> PhysicalPlan:
    """The plan of a query that is to be started."""
    return plan_relation(query.relation, query.output_mode, query.options)


def plan_relation(relation: Relation, output_mode: OutputMode, options: Options) -> PhysicalPlan:
    """The plan of a relation, before a sink and a checkpoint are chosen."""
    if isinstance(relation, PassThrough):
        return PhysicalPlan((), (), (), options, passed=relation)
    relations = operators_of(relation)
    hop = relation if isinstance(relation, SparkHop) else None
    given = (relation,) if hop is None else hop.inputs
    outputs = tuple(_number(relations, each) for each in given)
    stages, inputs = _stages(relations, outputs, output_mode, options)
    recording = options.record_folder is not None
    for wrong in [stage.operator.why_not_recordable() for stage in stages] if recording else []:
        if wrong is not None:
            raise AnalysisError(f'{wrong}; remove the option "recordAccesses"')
    return PhysicalPlan(
        stages=stages,
        inputs=inputs,
        outputs=outputs,
        # With combining, a partial of many rows would be recorded as one access.
        options=replace(options, combine=Combine.OFF) if recording else options,
        hop=hop,
    )


def _stages(
    relations: Sequence[Relation], outputs: Sequence[int], output_mode: OutputMode, options: Options
) -> tuple[tuple[Stage, ...], tuple[Input, ...]]:
    before = [_before(relations, relation) for relation in relations]
    specs = _specs(relations, before, outputs, output_mode, options)
    stages: list[Stage] = []
    lags: list[Micros | None] = []  # by stage, how old the rows are that it gives
    inputs: list[Input] = []
    for relation, spec, feeding in zip(relations, specs, before, strict=True):
        lag = _lag(spec, [stages[number] for number in feeding], [lags[number] for number in feeding])
        numbers: list[int | None] = []
        for source, read in zip(sources_of(relation), _inputs(relation, spec), strict=True):
            clocks = [] if isinstance(source, Relation) else read.by_clock()
            numbers += [None] if isinstance(source, Relation) else range(len(inputs), len(inputs) + len(clocks))
            inputs += clocks
        stages.append(Stage(spec, description_of(spec).store(spec), lag, relation, tuple(numbers), feeding))
        delay = spec.output_delay
        lags.append(None if delay is None else Micros(lag + delay))
    return tuple(stages), tuple(inputs)


def _inputs(relation: Relation, spec: OperatorSpec) -> tuple[Input, ...]:
    given, source = inputs_of(relation, spec), relation.source
    if not isinstance(source, United):
        return given
    return tuple(replace(given[0], watermark=watermark) for _, watermark in source.streams)


def _lag(spec: OperatorSpec, before: Sequence[Stage], lags: Sequence[Micros | None]) -> Micros:
    for stage, lag in zip(before, lags, strict=True):
        if spec.watermarked and lag is None:
            raise AnalysisError(
                f"{spec.name} has a watermark, but rows of {stage.operator.name} may come with event times as old "
                "as they like: give the join a ttl, which bounds how long a row waits for a match"
            )
    return max((lag for lag in lags if lag is not None), default=Micros(0))


def _specs(
    relations: Sequence[Relation],
    before: Sequence[tuple[int, ...]],
    outputs: Sequence[int],
    output_mode: OutputMode,
    options: Options,
) -> list[OperatorSpec]:
    """The operators, each with the columns that others read of it: rows bring nothing else."""
    specs = []
    for number, relation in enumerate(relations):
        # Operators that feed others give rows that are final.
        mode = output_mode if number in outputs else OutputMode.APPEND
        if number in outputs and any(number in feeding for feeding in before) and mode is not OutputMode.APPEND:
            raise AnalysisError(
                f"the rows of one operator go to the sink and to another operator, which takes rows that are final: "
                f"use .outputMode('append'), and not {mode.value!r}"
            )
        specs.append(plan_operator(relation, mode, number, options.shards))
    for number in reversed(range(len(specs))):
        readers = [reader for reader, feeding in enumerate(before) if number in feeding]
        if number not in outputs and all(_exchanged(relations[reader]) for reader in readers):
            specs[number] = specs[number].narrowed({name for reader in readers for name in specs[reader].reads})
    if options.changelog is Changelog.ON:
        for number in outputs:
            specs[number] = specs[number].with_changelog()
    return [spec.with_sparks_watermark() for spec in specs] if options.watermark is WatermarkRule.SPARK else specs


def _exchanged(relation: Relation) -> bool:
    """Whether servers bring an operator the rows of another one."""
    return not isinstance(relation, Join) and not isinstance(sources_of(relation)[0], SparkHop)


def _before(relations: Sequence[Relation], relation: Relation) -> tuple[int, ...]:
    """The operators whose rows it gets."""
    found: list[int] = []
    for source in sources_of(relation):
        if isinstance(source, Relation):
            feeding = source.inputs if isinstance(source, SparkHop) else (source,)
            found += [_number(relations, each) for each in feeding]
    return tuple(dict.fromkeys(found))


def _number(relations: Sequence[Relation], relation: Relation) -> int:
    return next(number for number, each in enumerate(relations) if each is relation)
