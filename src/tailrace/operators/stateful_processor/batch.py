"""The keys of one call with their rows, state and timers, as what calls a user's per-key function sees them.

Invariants
- Times are milliseconds since 1970, as PySpark's functions have them.
- Timers that came up are those at the end of a key's rows, earliest first: what a timer's call registers or deletes
  changes no other call of this epoch.

Threads: one call at a time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ids import MIN_MICROS
from tailrace.operators.process.function import Call
from tailrace.operators.stateful_processor.initial_state import InitialState
from tailrace.operators.stateful_processor.packed_state import NEVER, PackedState
from tailrace.operators.stateful_processor.spec import (
    DUE,
    NEXT_TIMER,
    TIMER_LIST,
    TIMERS,
    StatefulProcessorSpec,
    earliest_name,
    packed_name,
)
from tailrace.operators.timers.ttl import Clock

_MILLIS = 1000


class KeyBatch:
    """``keys``: a row for each key. ``rows``: theirs, those of key ``i`` from ``starts[i]`` to ``starts[i + 1]``.

    ``initial``: the initial state, in the first epoch; ``initial_rows[i]``: which of its rows are those of key ``i``.
    """

    def __init__(self, spec: StatefulProcessorSpec, call: Call, initial: InitialState | None = None) -> None:
        moment = call.moment
        self._spec = spec
        self._state = call.state
        self.keys: pa.Table = call.state.select([key.name for key in spec.keys])
        self.rows: pa.Table = call.rows.select([column.name for column in spec.columns])
        self.starts: list[int] = np.concatenate([[0], np.cumsum(call.counts)]).tolist()
        self.initial = initial
        self.initial_rows = [] if initial is None else initial.rows_of(self.keys)
        self.now = moment.now // _MILLIS
        self.watermark = _millis(moment.watermark)
        """What timers go by in event time."""
        self.watermark_of_rows = self.watermark if spec.sparks_watermark else _millis(moment.late_before)
        """What the function is shown with a key's rows."""
        self.variables = {
            variable.name: PackedState(
                variable,
                self._column(packed_name(number)),
                self._earliest(earliest_name(number)) if variable.expires else None,
                self.now,
            )
            for number, variable in enumerate(spec.variables)
        }
        self._timers = (
            PackedState(TIMER_LIST, self._column(TIMERS), self._earliest(NEXT_TIMER), self.now) if spec.timed else None
        )
        by_clock = self.now if spec.timers_clock is Clock.PROCESSING else self.watermark
        self._past = by_clock - 1 if spec.timeouts else by_clock
        self._set: dict[int, set[int]] = {}  # timers of the keys that looked at theirs
        self._dirty: set[int] = set()

    def __len__(self) -> int:
        return len(self._state)

    def _column(self, name: str) -> pa.Array:
        return self._state.column(name).combine_chunks()

    def _earliest(self, name: str) -> np.ndarray:
        return np.asarray(self._column(name).fill_null(NEVER))

    # Timers ----------------------------------------------------------------------------------------------------------

    @property
    def has_timers(self) -> bool:
        return self._timers is not None

    def timers(self, key: int) -> set[int]:
        """Those of a key. Not to be changed: see ``changed_timers``."""
        found = self._set.get(key)
        if found is None:
            assert self._timers is not None
            found = self._set[key] = {at for (at,) in self._timers.read(key)}
        return found

    def changed_timers(self, key: int) -> set[int]:
        """To be changed."""
        self._dirty.add(key)
        return self.timers(key)

    def expired(self, key: int) -> list[int]:
        if self._timers is None:
            return []
        if key not in self._dirty:
            assert self._timers.earliest is not None
            if self._timers.earliest[key] > self._past:
                return []
        return sorted(at for at in self.timers(key) if at <= self._past)

    # What becomes of the state ---------------------------------------------------------------------------------------

    def state_after(self) -> pa.Table:
        """The keys that stay, with what is kept of them."""
        for key in self._dirty:
            assert self._timers is not None
            self._timers.write(key, [(at,) for at in sorted(self._set[key])])
        columns: dict[str, pa.Array] = {}
        stay = np.zeros(len(self), bool)
        due = np.full(len(self), NEVER)
        for number, variable in enumerate(self.variables.values()):
            columns |= _kept(variable, packed_name(number), earliest_name(number), stay, due, 0)
        if self._timers is not None:
            columns |= _kept(self._timers, TIMERS, NEXT_TIMER, stay, due, int(self._spec.timeouts))
        if DUE in self._state.column_names:
            micros = pa.array(np.where(due < NEVER // _MILLIS, due, 0) * _MILLIS, mask=due >= NEVER // _MILLIS)
            columns[DUE] = micros.cast(self._state.schema.field(DUE).type)
        names = self._state.column_names[self.keys.num_columns :]
        arrays = [*self.keys.columns, *(columns[name] for name in names)]
        return pa.Table.from_arrays(arrays, names=self._state.column_names).filter(pa.array(stay))


def _kept(
    state: PackedState, packed: str, earliest: str, stay: np.ndarray, due: np.ndarray, later: int
) -> dict[str, pa.Array]:
    columns = {packed: state.finish()}
    stay |= np.asarray(pc.is_valid(columns[packed]))
    if state.earliest is not None:
        there = state.earliest != NEVER
        np.minimum(due, np.where(there, state.earliest, NEVER - later) + later, out=due)
        columns[earliest] = pa.array(state.earliest, mask=~there)
    return columns


def _millis(mark: int) -> int:
    """A watermark as Spark shows it: 0 before there is one."""
    return 0 if mark == MIN_MICROS else mark // _MILLIS
