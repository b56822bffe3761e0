"""An operator of any kind in a user's words, shared by ``explain`` and by the refusal of a changed query.

Different operators must read differently: ``fingerprint.differences`` compares these texts.
"""

from __future__ import annotations

from tailrace.operators.aggregate.describe import aggregate_kept, aggregate_lines, aggregate_outputs, aggregate_parts
from tailrace.operators.aggregate.pattern import WindowKind
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.dedup.describe import deduplicate_lines, deduplicate_parts
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.join.describe import join_lines, join_parts
from tailrace.operators.join.spec import JoinSpec
from tailrace.operators.lookup.describe import lookup_lines, lookup_parts
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.process.describe import process_lines, process_parts
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.top_n.describe import top_n_lines, top_n_parts
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.plan.words import fields_text


def kind_text(operator: OperatorSpec) -> str:
    """What it is called in a plan."""
    match operator:
        case AggregateSpec():
            return "Aggregate" if operator.best is None else "Top n"
        case JoinSpec():
            return "Join"
        case DeduplicateSpec():
            return "Drop duplicates"
        case LookupSpec():
            return "Lookup join"
        case TopNSpec():
            return "Top n"
        case ProcessSpec():
            return "Process"
    raise AssertionError(f"no name for {operator!r}")


def kind_name(operator: OperatorSpec) -> str:
    """What it is called in progress reports."""
    match operator:
        case AggregateSpec(window_kind=WindowKind.GLOBAL):
            return "rolling aggregate"
        case AggregateSpec(best=None):
            return f"{operator.window_kind} window aggregate"
        case JoinSpec():
            return str(operator.kind).replace("_", " ")
    return kind_text(operator).lower()


def lines(operator: OperatorSpec) -> list[str]:
    """For ``explain``, but for watermark and store."""
    match operator:
        case AggregateSpec():
            return aggregate_lines(operator)
        case JoinSpec():
            return join_lines(operator)
        case DeduplicateSpec():
            return deduplicate_lines(operator)
        case LookupSpec():
            return lookup_lines(operator)
        case TopNSpec():
            return top_n_lines(operator)
        case ProcessSpec():
            return process_lines(operator)
    raise AssertionError(f"no text for {operator!r}")


def parts(operator: OperatorSpec) -> dict[str, str]:
    """All that may not change, by name."""
    match operator:
        case AggregateSpec():
            own = aggregate_parts(operator)
        case JoinSpec():
            own = join_parts(operator)
        case DeduplicateSpec():
            own = deduplicate_parts(operator)
        case LookupSpec():
            own = lookup_parts(operator)
        case TopNSpec():
            own = top_n_parts(operator)
        case ProcessSpec():
            own = process_parts(operator)
        case _:
            raise AssertionError(f"no parts of {operator!r}")
    return {
        "operator": operator.name,
        **own,
        "watermark": "set" if operator.watermarked else "not set",
        "shards": str(operator.shards),
        "output columns": ", ".join(field.name for field in operator.emits),
    }


def output_texts(operator: OperatorSpec) -> dict[str, str]:
    """Outputs that are computed, by name."""
    return aggregate_outputs(operator) if isinstance(operator, AggregateSpec) else {}


def kept_text(operator: OperatorSpec) -> str:
    """What the state holds for the rest of it."""
    return aggregate_kept(operator) if isinstance(operator, AggregateSpec) else fields_text(operator.emits)
