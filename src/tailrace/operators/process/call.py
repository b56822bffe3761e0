"""One call of a user's function of rows and state: the tables that it gets, and what becomes of those that it returns.

Threads: one call at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.errors import UserFunctionError
from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.frame import by_shard
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.process.function import Call, KeysFunction, Moment, table_of
from tailrace.operators.process.keys import EpochKeys, Piece, ordered
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.process.timers import NEVER, Hints
from tailrace.operators.rows.row_order import in_order
from tailrace.operators.timers.ttl import Clock
from tailrace.operators.user_code.code import NOTHING_KEPT
from tailrace.state.layout import VALID, AccumulatorWords, RecordLayout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.arrange import take
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import to_section

_PLACE = "__place"
_SHOWN = 3


@dataclass(frozen=True)
class Arrivals:
    """The rows of an epoch, with the numbers of their keys and their event times."""

    rows: Rows
    numbers: np.ndarray
    times: np.ndarray


@dataclass(frozen=True)
class _Before:
    """Records of the keys of a call, in the order of their numbers, and where they lie in the store; -1: nowhere."""

    rows: Rows
    at: np.ndarray

    def word(self, place: AccumulatorWords, missing: int) -> np.ndarray:
        """A word of them, ``missing`` where there is no record or it is null."""
        there = (self.at >= 0) & (self.rows.words[:, VALID] >> place.bit & 1 == 1)
        return np.where(there, self.rows.words[:, place.word], missing)


class Caller:
    def __init__(
        self,
        spec: ProcessSpec,
        function: KeysFunction,
        store: ReadModifyWriteStore,
        timers: Hints | None,
        expiry: Hints | None,
    ) -> None:
        self._spec = spec
        self._store = store
        self._function = function
        self._sent, self._kept = spec.layout(), spec.kept_layout()
        self._hash_program = hash_program(self._kept)
        self._hidden = dict(zip(spec.hidden, self._kept.accumulators, strict=False))
        self._columns = self._kept.accumulators[len(self._hidden) :]
        self._timers, self._expiry = timers, expiry

    def call(
        self, keys: EpochKeys, piece: Piece, due: np.ndarray, arrivals: Arrivals, moment: Moment
    ) -> list[pa.RecordBatch]:
        """The output for the keys of a piece, whose state is changed. ``due``: which of them are."""
        before = self._before(keys, piece)
        own = arrivals.numbers[piece.rows] - piece.first
        times = arrivals.times[piece.rows]
        # By key, as the user sees it.
        state = self._columns_of(before.rows, self._kept)
        places = {field.name: state[field.name] for field in self._spec.keys}
        count = piece.end - piece.first
        in_keys = in_order({**places, _PLACE: pa.array(np.arange(count))}, list(places))[_PLACE] if places else None
        order = np.zeros(1, np.int64) if in_keys is None else np.asarray(in_keys)
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        rows = self._columns_of(Rows(arrivals.rows.words[piece.rows], arrivals.rows.heap), self._sent)
        state = {name: column.take(order) for name, column in state.items()}
        given = Call(
            table_of((*self._spec.keys, *self._spec.rows), ordered(rows, rank[own], times)),
            table_of((*self._spec.keys, *self._spec.state), state),
            np.bincount(rank[own], minlength=count),
            due[order] if self._timers is not None else None,
            moment,
        )
        made = self._function.call(given)
        newest = np.full(count, MIN_MICROS, np.int64)
        np.maximum.at(newest, own, times)
        self._keep(made.state, keys, piece, before, due, newest, moment)
        return self._function.batches(made)

    def _before(self, keys: EpochKeys, piece: Piece) -> _Before:
        at = np.full(piece.end - piece.first, -1, np.int64)
        parts, numbers = [], []
        for shard, table in self._store.tables():
            low, high = (
                int(edge) for edge in np.searchsorted(keys.shards[piece.first : piece.end], [shard, shard + 1])
            )
            if low == high:
                continue
            wanted = Rows(keys.rows.words[piece.first + low : piece.first + high], keys.rows.heap)
            at[low:high] = table.locate(wanted)
            there = low + np.flatnonzero(at[low:high] >= 0)
            parts.append(table.copy(at[there]))
            numbers.append(there)
        new = np.flatnonzero(at < 0)
        fresh = take(keys.rows, piece.first + new, keys.layout)
        padded = np.zeros((len(new), self._kept.words), np.int64)
        padded[:, : keys.layout.words] = fresh.words
        rows = concat_rows([*parts, Rows(padded, fresh.heap)], self._kept)
        words = np.empty_like(rows.words)
        words[np.concatenate([*numbers, new])] = rows.words
        return _Before(Rows(words, rows.heap), at)

    def _columns_of(self, rows: Rows, layout: RecordLayout) -> dict[str, pa.Array]:
        """By the names that users know them by."""
        section = to_section(rows, layout)
        if layout is self._sent:
            names = [field.name for field in (*self._spec.keys, *self._spec.rows)]
            return dict(zip(names, section.columns[2:], strict=True))
        names = [field.name for field in (*self._spec.keys, *self._spec.state)]
        first = 2 + len(self._spec.keys)
        shown = [*section.columns[2:first], *section.columns[first + len(self._hidden) :]]
        return dict(zip(names, shown, strict=True))

    # What comes back -------------------------------------------------------------------------------------------------

    def _keep(
        self,
        state: pa.Table,
        keys: EpochKeys,
        piece: Piece,
        before: _Before,
        due: np.ndarray,
        newest: np.ndarray,
        moment: Moment,
    ) -> None:
        rows = self._records(state)
        own = self._checked(keys.numbers(rows), piece, state, moment.epoch) - piece.first
        seen = self._hidden["seen"]
        rows.words[:, seen.word] = self._updated(before, due, newest, moment)[own]
        rows.words[:, VALID] |= 1 << seen.bit
        if self._timers is not None:
            hints = before.word(self._hidden["timer"], NEVER)
            self._timers.note(rows, np.where(due, NEVER, hints)[own])  # the entry of one that is due was taken
        if self._expiry is not None:
            self._expiry.note(rows, before.word(self._hidden["expiry"], NEVER)[own])
        gone = before.at >= 0
        gone[own] = False
        shards = keys.shards[piece.first : piece.end]
        for shard in np.unique(shards[gone]).tolist():
            self._store.remove(shard, before.at[gone & (shards == shard)])
        # Whatever records these keys had are in memory by now.
        frame = by_shard(rows, self._spec.shards)
        self._store.merge_more([frame.parts()], replace=True, fresh=True, hold=False)

    def _records(self, state: pa.Table) -> Rows:
        builder = RowsBuilder(len(state), self._kept)
        for key, key_place in zip(self._spec.keys, self._kept.keys, strict=True):
            builder.put(state.column(key.name).combine_chunks(), key.type, key_place.word, key_place.bit)
        for field, place in zip(self._spec.state, self._columns, strict=True):
            builder.put(state.column(field.name).combine_chunks(), field.type, place.word, place.bit)
        rows = builder.finish()
        put_hashes(rows, self._hash_program)
        return rows

    def _updated(self, before: _Before, due: np.ndarray, newest: np.ndarray, moment: Moment) -> np.ndarray:
        """When each key was last updated, by the clock of the ttl: by its rows, or by its timer at the timer's time."""
        spec = self._spec
        if spec.ttl is None:
            return np.zeros(len(newest), np.int64)
        if spec.ttl.clock is Clock.PROCESSING:
            return np.full(len(newest), moment.now, np.int64)
        times: np.ndarray = np.maximum(newest, before.word(self._hidden["seen"], MIN_MICROS))
        if spec.timers_clock is Clock.EVENT:
            names = [field.name for field in spec.state]
            timer = self._columns[names.index(spec.timers or "")]
            times = np.where(due, np.maximum(times, before.word(timer, MIN_MICROS)), times)
        return times

    def _checked(self, numbers: np.ndarray, piece: Piece, state: pa.Table, epoch: int) -> np.ndarray:
        """Refuse keys that the call was not given, and keys that come twice."""
        foreign = (numbers < piece.first) | (numbers >= piece.end)
        if foreign.any():
            self._refuse("has keys that it was not given", state, np.flatnonzero(foreign), epoch)
        twice = np.bincount(numbers - piece.first, minlength=piece.end - piece.first)[numbers - piece.first] > 1
        if twice.any():
            self._refuse("has keys more than once", state, np.flatnonzero(twice), epoch)
        return numbers

    def _refuse(self, what: str, state: pa.Table, wrong: np.ndarray, epoch: int) -> None:
        shown = state.select([key.name for key in self._spec.keys]).take(pa.array(wrong[:_SHOWN])).to_pylist()
        if not self._spec.keys:
            shown = [f"{len(state)} rows, and without group columns there is one key"]
        raise UserFunctionError(
            f"{self._function.name(epoch)}: its state {what}: {', '.join(map(str, shown))}. Return the state of each "
            f"key that was given and stays, once. {NOTHING_KEPT}"
        )
