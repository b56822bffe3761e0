"""The operators: one line each. The only place that knows all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.api.relations import OutputMode, Relation
from tailrace.operators.aggregate.kind import AGGREGATE
from tailrace.operators.base import Operator
from tailrace.operators.dedup.kind import DEDUPLICATE
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.join.kind import JOIN
from tailrace.operators.kind import Description, Input, OperatorKind
from tailrace.operators.lookup.kind import LOOKUP
from tailrace.operators.process.kind import PROCESS
from tailrace.operators.resources import Resources
from tailrace.operators.row_number.kind import ROW_NUMBER
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.spec_json import from_plain
from tailrace.operators.state_view import StateView
from tailrace.operators.stateful_processor.kind import STATEFUL_PROCESSOR
from tailrace.operators.top_n.kind import TOP_N
from tailrace.state.tuning import DEFAULT_TUNING, Tuning
from tailrace.types import DataType

KINDS: tuple[OperatorKind[Any], ...] = (
    AGGREGATE,
    DEDUPLICATE,
    JOIN,
    LOOKUP,
    PROCESS,
    ROW_NUMBER,
    STATEFUL_PROCESSOR,
    TOP_N,
)

_BY_NAME = {kind.spec.operator: kind for kind in KINDS}
_BY_RELATION = {kind.relation: kind for kind in KINDS}


def kind_of(spec: OperatorSpec) -> OperatorKind[Any]:
    return _BY_NAME[spec.operator]


def spec_from_json(text: str) -> OperatorSpec:
    """The description of an operator of any kind."""
    plain = json.loads(text)
    spec: OperatorSpec = from_plain(_BY_NAME[plain["operator"]].spec, plain)
    return spec


# The driver ---------------------------------------------------------------------------------------------------------


def plan_operator(relation: Relation, output_mode: OutputMode, number: int, shards: int) -> OperatorSpec:
    """``number``: of the operator in its chain, from 0 on."""
    kind = _BY_RELATION[type(relation)]
    return kind.plan(relation, output_mode, shards, f"{kind.name}-{number + 1}" if number else kind.name)


def inputs_of(relation: Relation, spec: OperatorSpec) -> tuple[Input, ...]:
    """The streams that the first operator of a chain reads."""
    return _BY_RELATION[type(relation)].inputs(relation, spec)


def description_of(spec: OperatorSpec) -> Description[Any]:
    return kind_of(spec).description


def progress_name(spec: OperatorSpec) -> str:
    """What an operator is called in progress reports."""
    described = description_of(spec)
    return described.title(spec).lower() if described.progress_name is None else described.progress_name(spec)


# Tasks --------------------------------------------------------------------------------------------------------------


def ingest_of(
    spec: OperatorSpec, late_before: int, combine: bool, input_types: Mapping[str, DataType], epoch: int | None = None
) -> Ingest:
    """What turns batches into frames of this operator. See ``IngestContext``."""
    return kind_of(spec).ingest(spec, IngestContext(late_before, combine, input_types, epoch))


# State servers ------------------------------------------------------------------------------------------------------


def operator_of(
    spec: OperatorSpec, shards: Iterable[int], *, memory_bytes: int, folder: str, tuning: Tuning = DEFAULT_TUNING
) -> Operator:
    """See ``Resources``."""
    return operator_with(spec, shards, Resources(memory_bytes, folder, tuning))


def operator_with(spec: OperatorSpec, shards: Iterable[int], resources: Resources) -> Operator:
    return kind_of(spec).runtime().operator(spec, shards, resources)


def compact_sections(
    spec: OperatorSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    """See ``CompactSections``."""
    return kind_of(spec).runtime().compact_sections(spec, batches, horizon, complete=complete)


# Who looks into checkpoints -----------------------------------------------------------------------------------------


def state_view_of(spec: OperatorSpec) -> StateView[Any] | None:
    """How the operator's state is shown; None: it keeps none."""
    return kind_of(spec).runtime().view
