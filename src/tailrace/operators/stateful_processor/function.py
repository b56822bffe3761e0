"""A per-key function of PySpark's, called with the keys of an epoch that have rows or have to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tailrace.operators.output import output_schema
from tailrace.operators.process.function import Call, Made, ProcessFunction
from tailrace.operators.stateful_processor.batch import KeyBatch
from tailrace.operators.stateful_processor.initial_state import FIRST_EPOCH, InitialState
from tailrace.operators.stateful_processor.spec import StatefulProcessorSpec
from tailrace.operators.user_code.code import called


class PerKeyFunction(ProcessFunction):
    _spec: StatefulProcessorSpec

    def call(self, call: Call) -> Made:
        name = self.name(call.moment.epoch)
        calls: Callable[..., Any] = self._function
        first = self._spec.initial and call.moment.epoch == FIRST_EPOCH
        batch = KeyBatch(self._spec, call, InitialState(self._spec) if first else None)
        output, state = called(_run, name, calls, batch)
        output = self.checked(output, output_schema(self._spec), f"{name}: its output")
        if self._spec.time_name is not None:
            self.check_times(output.column(self._spec.time_name), call.moment.late_before, name)
        return Made(output, state.cast(self.state_schema))


def _run(calls: Callable[..., Any], batch: KeyBatch) -> tuple[pa.Table, pa.Table]:
    """The output, and the state of the keys that stay. A value that the state cannot hold is the function's error."""
    output = calls(batch)
    return output, batch.state_after()
