"""A user's function of rows and state to the operator that a state server runs for it."""

from __future__ import annotations

from tailrace.api.relations import OutputMode, Process
from tailrace.errors import AnalysisError
from tailrace.operators.planning.ttl import clock_of, plan_ttl
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.spec import VALUES_MAX


def plan_process(stream: Process, output_mode: OutputMode, shards: int, name: str) -> ProcessSpec:
    time = None if stream.watermark is None else stream.watermark.column
    spec = ProcessSpec(
        name=name,
        keys=stream.keys,
        rows=(*([time] if time is not None and time not in stream.keys else []), *stream.columns),
        state=stream.state,
        outputs=stream.outputs,
        time_column=time,
        watermarked=stream.watermark is not None,
        shards=shards,
        function=packed(stream.function),
        timers=stream.timers,
        timers_clock=None if stream.timers is None else clock_of(stream.timers_processing),
        ttl=plan_ttl(stream.state_ttl),
        time_name=stream.time_name,
    )
    for what, width in (("a row", len(spec.rows)), ("the state of a key", len(spec.hidden) + len(spec.state))):
        if len(spec.keys) + width > VALUES_MAX:
            raise AnalysisError(
                f"process: {what} has {len(spec.keys) + width} columns with the group columns and our own, and at most "
                f"{VALUES_MAX} are possible: name those that you need with columns=[...], or keep less"
            )
    return spec
