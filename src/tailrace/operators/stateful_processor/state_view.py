"""The state of a stateful processor as its user knows it: a row a key, a column for each state variable.

A value is a struct, a list a list of structs, a map a map; timers are a list of times. Values with a time-to-live have
a field with when they expire: one that has expired lies there until its key is looked at. Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.operators.state_view import EXPIRES, Columns, StateView
from tailrace.operators.stateful_processor.packed_state import unpacked
from tailrace.operators.stateful_processor.spec import (
    TIMER_LIST,
    TIMERS,
    StatefulProcessorSpec,
    VariableSpec,
    packed_name,
)
from tailrace.state.rows.columns import arrow_type
from tailrace.types import TIMESTAMP

TIMER_COLUMN = "_timers"
_TIME = arrow_type(TIMESTAMP)


def _rows(
    spec: StatefulProcessorSpec, section: pa.RecordBatch, horizon: int, *, records: bool
) -> Iterator[pa.RecordBatch]:
    shown, first = Columns(), 2 + len(spec.keys)
    shown.fields(spec.keys, section.columns[2:])
    names = [field.name for field in spec.state]
    kept = dict(zip(names, section.columns[first + len(spec.hidden) :], strict=True))
    for number, variable in enumerate(spec.variables):
        shown.add(variable.name, _variable(variable, kept[packed_name(number)]))
    if TIMERS in kept:
        shown.own(TIMER_COLUMN, _timers(kept[TIMERS]))
    yield shown.batch()


VIEW = StateView(_rows, identity=lambda spec, records: len(spec.keys))


def _variable(variable: VariableSpec, packed: pa.Array) -> pa.Array:
    arrays, starts = unpacked(packed, variable)
    names = [field.name for field in variable.fields]
    if variable.expires:
        arrays[-1] = _from_ms(arrays[-1])
        names.append(EXPIRES)
    if variable.kind == "map":
        cut = variable.keys
        keys = pa.StructArray.from_arrays(arrays[:cut], names=names[:cut])
        values = pa.StructArray.from_arrays(arrays[cut:], names=names[cut:])
        return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), keys, values)
    rows = pa.StructArray.from_arrays(arrays, names=names)
    if variable.kind == "list":
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), rows)
    there = np.diff(starts) > 0
    return rows.take(pa.array(np.where(there, starts[:-1], 0), mask=~there))


def _timers(packed: pa.Array) -> pa.Array:
    arrays, starts = unpacked(packed, TIMER_LIST)
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), _from_ms(arrays[0]))


def _from_ms(times: pa.Array) -> pa.Array:
    return pc.multiply(times, 1000).cast(_TIME)
