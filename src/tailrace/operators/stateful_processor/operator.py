"""A per-key function of PySpark's, on the read-modify-write store: one record a key, with all of its state and timers.

Invariants
- It is ``operators.process`` with a function of its own: which keys are called, undoing, replaying and forgetting are
  those of that operator. A key is due when its first timer has come up, or when the first row of its state expires.
- All states of a call's keys come in one read of the store and go in one write. The user's Python runs key by key.
- The user's object is made anew for each call: nothing that it keeps in itself reaches another one.

Threads: one call at a time.
"""

from __future__ import annotations

from tailrace.operators.process.operator import Process
from tailrace.operators.stateful_processor.function import PerKeyFunction
from tailrace.operators.stateful_processor.initial_state import FIRST_EPOCH, InitialState
from tailrace.operators.stateful_processor.spec import StatefulProcessorSpec
from tailrace.state.rows.rows import Rows

CALL_ROWS_MAX = 1 << 14
CALL_BYTES_MAX = 8 << 20
"""As of ``process``, and less: rows and state become Python objects, which are many times as large."""


class StatefulProcessors(Process):
    spec: StatefulProcessorSpec

    def _function(self) -> PerKeyFunction:
        return PerKeyFunction(self.spec)

    def _more_keys(self, epoch: int) -> Rows:
        """Those of the initial state, in the first epoch."""
        if epoch != FIRST_EPOCH or not self.spec.initial:
            return super()._more_keys(epoch)
        return InitialState(self.spec).keys(self._keys, self.shards)

    def _rows_max(self, rows: Rows) -> int:
        """A key's state may be much larger than its rows: each counts as large as states are on average."""
        row = (rows.words.nbytes + rows.heap.nbytes) / max(1, len(rows))
        record = self._store.nbytes / max(1, self._store.rows)
        return max(1, min(CALL_ROWS_MAX, int(CALL_BYTES_MAX / max(row, record, 8 * self._kept.words))))
