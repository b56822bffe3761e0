"""What an operator is to the rest of the engine: one frozen object, defined in the operator's package.

Three processes ask for it. The driver plans and explains, tasks ingest, and state servers hold the state. Importing the
compiled kernels of all stores takes a Python worker a sixth of its start, so what only servers need is behind one call,
``runtime``, which imports it when it is first made.

To add an operator: a package with a spec, a relation, an ingest, the operator itself and an ``OperatorKind`` of them,
and its line in ``operators.registry``. Nothing else in the engine knows one operator from another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from tailrace.api.relations import OutputMode, Watermark
from tailrace.operators.base import Operator
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.pattern import StoreChoice
from tailrace.operators.planning.texts import fields_text
from tailrace.operators.resources import Resources
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.state_view import StateView
from tailrace.types import Field

_Spec = TypeVar("_Spec", bound=OperatorSpec)
_SpecIn = TypeVar("_SpecIn", bound=OperatorSpec, contravariant=True)


class MakeOperator(Protocol[_SpecIn]):
    def __call__(self, spec: _SpecIn, shards: Iterable[int], resources: Resources, /) -> Operator: ...


class CompactSections(Protocol[_SpecIn]):
    def __call__(
        self, spec: _SpecIn, batches: Sequence[pa.RecordBatch], horizon: int, /, *, complete: bool
    ) -> pa.RecordBatch:
        """One section that stands for several, oldest first. ``complete``: there are none before them."""


@dataclass(frozen=True)
class OperatorRuntime(Generic[_Spec]):
    """What state servers need, and who looks into checkpoints (``view``; None: the operator keeps no state).

    ``warm_up`` runs the operator's kernels once, so that no epoch waits for a compiler.
    """

    operator: MakeOperator[_Spec]
    compact_sections: CompactSections[_Spec]
    view: StateView[_Spec] | None
    warm_up: Callable[[], None] = lambda: None


def _final_rows(spec: Any) -> str:
    return "rows that are final"


def _never_dropped(spec: Any) -> str:
    return "state is never dropped"


def _no_window(spec: Any) -> str:
    return "no window"


def _no_outputs(spec: Any) -> dict[str, str]:
    return {}


def _output_columns(spec: Any) -> str:
    return fields_text(spec.emits)


@dataclass(frozen=True)
class Description(Generic[_Spec]):
    """An operator in a user's words, for ``explain`` and for the refusal of a changed query.

    Different operators must read differently: ``plan.fingerprint`` compares ``parts``, ``outputs`` and ``kept``.
    """

    title: Callable[[_Spec], str]  # in a plan; in lower case also in progress reports
    lines: Callable[[_Spec], list[str]]  # for ``explain``, but for watermark and store
    parts: Callable[[_Spec], dict[str, str]]  # all that may not change, by name
    store: Callable[[_Spec], StoreChoice]
    progress_name: Callable[[_Spec], str] | None = None  # where the title does not say enough
    outputs: Callable[[_Spec], dict[str, str]] = _no_outputs  # outputs that are computed, by name
    kept: Callable[[_Spec], str] = _output_columns  # what the state holds beside ``parts``
    final: Callable[[_Spec], str] = _final_rows  # which rows output mode append gives
    undropped: Callable[[_Spec], str] = _never_dropped  # what becomes of state that no watermark drops
    timeless: Callable[[_Spec], str] = _no_window  # why no watermark counts


@dataclass(frozen=True)
class Input:
    """One of the streams that the first operator reads.

    ``columns``: all that is read of it, in its own order. ``watermark``: None where there is none.
    """

    columns: tuple[Field, ...]
    watermark: Watermark | None

    def by_clock(self) -> list[Input]:
        """Itself, or where its watermark goes by several clocks one for each."""
        clocks = () if self.watermark is None else self.watermark.clocks
        return [replace(self, watermark=each) for each in clocks] or [self]


def one_input(relation: Any, spec: OperatorSpec) -> tuple[Input, ...]:
    """Of a relation with one source: those of its columns that the operator reads."""
    read = tuple(field for field in relation.schema if field.name in spec.reads)
    return (Input(read, relation.watermark),)


@dataclass(frozen=True)
class OperatorKind(Generic[_Spec]):
    spec: type[_Spec]
    relation: type[Any]  # what the API makes, a ``Relation``
    name: str  # of the operators of a plan: aggregate, aggregate-2 and so on
    plan: Callable[[Any, OutputMode, int, str], OperatorSpec]  # relation, output mode, shards, name
    description: Description[_Spec]
    ingest: Callable[[_Spec, IngestContext], Ingest]
    runtime: Callable[[], OperatorRuntime[_Spec]]
    inputs: Callable[[Any, Any], tuple[Input, ...]] = one_input
