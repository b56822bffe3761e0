"""A plan as a tree that a user can read: from the sink down to the source, as Spark's own ``explain`` goes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.api import definition
from tailrace.api.duration import format_duration
from tailrace.api.options import (
    Combine,
    CommitMode,
    Options,
    Prefetch,
    Route,
    TlsMode,
    Transport,
    WatermarkPolicy,
    WatermarkRule,
    changed_options,
)
from tailrace.api.relations import OutputMode, SparkHop, Watermark, sources_of
from tailrace.operators.planning.texts import fields_text
from tailrace.operators.registry import description_of
from tailrace.plan.physical import PhysicalPlan, Stage

_COMMITS = {
    CommitMode.SYNC: "an epoch is durable before its rows reach the sink",
    CommitMode.ASYNC_CHECKPOINT: "an epoch's deltas are written before its rows reach the sink, and it is durable "
    "before those of the next do",
    CommitMode.ASYNC: "an epoch is durable before the rows of the next reach the sink",
}
_PREFETCHES = {
    Prefetch.ON: "fetched while the batch that needs it still arrives",
    Prefetch.OFF: "fetched when rows need it",
    Prefetch.ASYNC_IO: "fetched when rows need it, while those that need nothing go on",
}
_ROUTES = {
    Route.DIRECT: "direct: each task sends rows straight to the servers that own their keys",
    Route.SHUFFLE: "shuffle: Spark's shuffle brings rows together by shard, each task then sends to one server",
}
_COMBINES = {
    Combine.AUTO: "auto: tasks merge rows of the same key before sending, where that pays",
    Combine.ON: "on: tasks merge rows of the same key before sending",
    Combine.OFF: "off: every row is sent",
}
_UNCOMBINED = "off: the operator needs every row as it is"
_RULES = {
    WatermarkRule.TAILRACE: "tailrace: windows close by all rows seen, this epoch's included",
    WatermarkRule.SPARK: "spark: windows close as in Spark's own aggregation, an epoch later",
}


def explain(plan: PhysicalPlan, query: definition.QueryDefinition | None = None) -> str:
    """The plan; with the query also its sink and its places."""
    head, sink = _sink_lines(plan, query)
    if plan.passed is not None:
        columns = f"gives {fields_text(plan.passed.fields, 'no column')}"
        passing = _Node("Spark", ("the rows go through as they are: no state, and no state servers", columns))
        return "\n".join(
            _lines(
                _Node(
                    head, (*sink, _commit_text(plan), *_option_lines(plan.options), *_location_lines(query)), (passing,)
                )
            )
        )
    made = [_stage_node(plan, plan.stages[number], query) for number in dict.fromkeys(plan.outputs)]
    hop = made if plan.hop is None else [_Node("Spark", (plan.hop.label,), tuple(made))]
    return "\n".join(_lines(_Node(head, tuple(sink), tuple(hop))))


@dataclass(frozen=True)
class _Node:
    title: str
    details: tuple[str, ...]
    below: tuple[_Node, ...] = ()


def _stage_node(plan: PhysicalPlan, stage: Stage, query: definition.QueryDefinition | None) -> _Node:
    described, spec = description_of(stage.operator), stage.operator
    below = [_stage_node(plan, plan.stages[number], query) for number in stage.before]
    if stage.by_spark:
        below = [_Node("Ingest", (_hop_text(stage),), tuple(below))]
    if stage.ingests:
        reads = [plan.inputs[number].columns for number in stage.inputs if number is not None]
        lines = dict.fromkeys(f"reads {fields_text(columns, 'no column')}" for columns in reads)
        source = _Node("Source", tuple(lines))
        below.append(_Node("Ingest", tuple(_ingest_lines(plan, stage, query)), (source,)))
    state = _Node("State", tuple(_state_lines(plan, stage, query)), tuple(below))
    return _Node(described.title(spec), (*described.lines(spec), *_watermark_lines(plan, stage)), (state,))


def _hop_text(stage: Stage) -> str:
    labels = [source.label for source in sources_of(stage.relation) if isinstance(source, SparkHop)]
    return f"through Spark within the epoch: {', '.join(labels) or 'rows of both sides united'}"


def _lines(node: _Node, indent: str = "", last: bool = True, top: bool = True) -> list[str]:
    """As Spark draws its plans: what a node is made of stands below it."""
    lead = "" if top else indent + ("+- " if last else ":- ")
    inner = "" if top else indent + ("   " if last else ":  ")
    found = [lead + node.title, *(f"{inner}{'|  ' if node.below else '   '}{detail}" for detail in node.details)]
    for number, each in enumerate(node.below, 1):
        found += _lines(each, inner, number == len(node.below), False)
    return found


def _append_text(plan: PhysicalPlan) -> str:
    return f"append: {description_of(plan.last).final(plan.last)}"


def _sink_lines(plan: PhysicalPlan, query: definition.QueryDefinition | None) -> tuple[str, list[str]]:
    if plan.passed is not None:
        lines = ["output mode append: each row once"]
    else:
        lines = [f"output mode {_mode_text(plan)}"]
    if query is None:
        return "Sink (not chosen yet)", lines
    lines.append(f"trigger {_trigger_text(query.trigger)}")
    return f"Sink {_sink_text(query.sink)}" + (f" of query {query.name!r}" if query.name else ""), lines


def _mode_text(plan: PhysicalPlan) -> str:
    modes = {
        OutputMode.APPEND: _append_text(plan),
        OutputMode.UPDATE: "update: the rows that changed",
        OutputMode.COMPLETE: "complete: the rows of all groups, each epoch",
    }
    return modes[plan.output_mode]


def _watermark_lines(plan: PhysicalPlan, stage: Stage) -> list[str]:
    described, spec = description_of(stage.operator), stage.operator
    if plan.delays is None:
        return [f"no watermark: no row is late and {described.undropped(spec)}"]
    lag = f", {format_duration(stage.lag)} behind" if stage.lag else ""
    if not stage.ingests:
        return [f"watermark of the operator below{lag}: its rows are final"]
    inputs = [plan.inputs[number] for number in stage.inputs if number is not None]
    lines = [_trails(each.watermark) for each in inputs if each.watermark is not None]
    if len(plan.inputs) > 1:
        which = "these" if len(lines) == len(plan.inputs) else "all streams"
        counts = "smallest" if len(plan.inputs) > 2 else "smaller"
        if plan.policy is WatermarkPolicy.MAX:
            counts = "largest" if len(plan.inputs) > 2 else "larger"
        lines = [*lines, f"of {which} the {counts} one counts{lag}"]
    if plan.options.idle_timeout is not None:
        lines.append(f"a stream that is silent for {format_duration(plan.options.idle_timeout)} is not waited for")
    if not spec.watermarked:
        return [*lines, f"{described.timeless(spec)}: no row is late and {described.undropped(spec)}"]
    if spec.complete:
        return [*lines, "rows are late by it, and nothing is dropped"]
    return [*lines, f"watermark rule {_RULES[plan.options.watermark]}"]


def _trails(watermark: Watermark) -> str:
    return f"watermark on {watermark.column.name}, {format_duration(watermark.delay)} behind the largest event time"


def _state_lines(plan: PhysicalPlan, stage: Stage, query: definition.QueryDefinition | None) -> list[str]:
    lines = [
        f"store {stage.store.pattern or 'none'}{', chosen by you' if stage.store.by_user else ''}: {stage.store.reason}"
    ]
    if stage is not plan.stages[0]:
        return lines
    options = plan.options
    lines += [
        f"shards {plan.shards}",
        f"memory {_bytes_text(options.memory_bytes)} for each state server",
        f"disk for the rest: {options.read_batch_ratio:g} of its lists is read ahead, compacted beyond "
        f"{options.max_space_amplification:g} times the bytes needed",
        f"spilled state: {_PREFETCHES[options.spilled.prefetch]}; evicted by {options.spilled.policy}, "
        f"read {options.spilled.reads}",
        _commit_text(plan),
        f"keeps {options.retain} durable versions; where servers are lost, goes on for "
        f"{format_duration(options.recovery_timeout)} without progress",
        *_option_lines(options),
    ]
    if any(each.operator.has_user_code for each in plan.stages):
        lines.append(f"gives a call of your function {format_duration(options.function_timeout)}")
    if options.record_folder is not None:
        lines.append(f"accesses are recorded in {options.record_folder} on the executors")
    if query is not None:
        lines += _location_lines(query)
        if re.match(r"(?!file:)[a-z0-9]{2,}:", query.state_location.lower()):
            folder = options.local_location or "the temporary folder"
            kept = f"in {folder} on the executors" if options.keeps_copies else "not kept"
            lines.append(f"copies of its objects {kept}")
    return lines


def _commit_text(plan: PhysicalPlan) -> str:
    reason = f", {plan.commit_reason}" if plan.commit_reason else ""
    return f"commit {plan.options.commit}{reason}: {_COMMITS[plan.options.commit]}"


def _option_lines(options: Options) -> list[str]:
    changed = changed_options(options)
    return [f"options set: {', '.join(f'{option.name}={value}' for option, value in changed)}"] if changed else []


def _location_lines(query: definition.QueryDefinition | None) -> list[str]:
    if query is None:
        return []
    return [f"state location {query.state_location}", f"checkpoint location {query.checkpoint_location}"]


def _ingest_lines(plan: PhysicalPlan, stage: Stage, query: definition.QueryDefinition | None) -> list[str]:
    combine = _UNCOMBINED if stage.operator.sends_rows else _COMBINES[plan.options.combine]
    lines = [f"route {_ROUTES[plan.options.route]}", f"combine {combine}", f"transport {_transport(plan.options)}"]
    if query is not None and query.late is not None:
        lines.append(f"late rows to {_sink_text(query.late)}")
    return lines


def _transport(options: Options) -> str:
    if options.transport is Transport.UNIX:
        return options.transport.value
    encrypted = "not encrypted" if options.encryption.mode is TlsMode.OFF else "encrypted"
    return f"{options.transport}, {encrypted} between machines"


def _sink_text(sink: definition.Sink) -> str:
    if isinstance(sink, definition.ForeachBatch):
        return f"foreachBatch {getattr(sink.function, '__name__', 'function')}"
    if isinstance(sink, definition.Foreach):
        return f"foreach {getattr(sink.writer, '__name__', type(sink.writer).__name__)}"
    if isinstance(sink, definition.TableSink):
        return f"{sink.name} {sink.options.place}".strip()
    text = sink.name if sink.path is None else f"{sink.name} {sink.path}"
    return f"{text} partitioned by {', '.join(sink.partition_by)}" if sink.partition_by else text


def _trigger_text(trigger: definition.Trigger) -> str:
    if isinstance(trigger, definition.Once):
        return "once: what is there in one epoch, then stop"
    if not isinstance(trigger, definition.ProcessingTime):
        return "available now: what is there, then stop"
    if trigger.interval == 0:
        return "as soon as the last epoch is done"
    return f"every {format_duration(trigger.interval)}"


def _bytes_text(size: int) -> str:
    for unit, width in (("GB", 30), ("MB", 20), ("KB", 10)):
        if size >> width and not size & ((1 << width) - 1):
            return f"{size >> width}{unit}"
    return f"{size} bytes"
