"""Open sessions of keys whose rows each have a gap of their own.

A row is an interval, from its time to the end of the session that it would make alone; intervals of a key that touch
are one session, and so is what touches the two of them: see ``rows.intervals``. Bounds and merging are those of Spark's
``session_window`` with an expression for the gap.

Invariants
- A record is a part of a session: the hull of intervals that touch. Parts of a key are numbered from 0 on, without a
  hole, and the number stands where other sessions have their pane. So all parts of a key are found by asking for 0, 1
  and so on, wherever they lie.
- A row joins a part that it touches, and else a part of its session that it makes. Two parts that touch since a row
  came between them stay two: sessions are made of parts when they are read.
- When a session ends, its parts go, and the last parts of the key take their numbers.
- Each key has a deadline at or before the end of the session that ends first, by its hash: a part that is made puts one
  at its end, and who takes one puts another, at the end of what is left.
- Where lists of rows belong to parts, a part also knows its list, by the time of the row that made it: parts that a key
  has at one time never began with the same, since they would touch. A part's number may change, its list does not.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tailrace.operators.resources import Resources
from tailrace.operators.rows.intervals import numbers_of_keys, sessions_of
from tailrace.operators.session.former_sessions import FormerSessions, former_of_intervals
from tailrace.operators.session.open_sessions import OpenSessions, Sessions, grouped, table_of
from tailrace.operators.session.whole_sessions import hash_pieces
from tailrace.operators.timers.deadlines import HASH as ENTRY_HASH
from tailrace.operators.timers.deadlines import split_by_shard
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, PANE, RecordLayout
from tailrace.state.read_modify_write import probes
from tailrace.state.read_modify_write.record_copies import RecordCopies
from tailrace.state.rows.rows import Rows, concat_rows

_PIECE_ROWS = 1 << 16
"""Rows, or records, that are looked at together."""
_STEPS_MAX = 64
_NO_NUMBERS = np.empty(0, np.int64)


class DynamicSessions(OpenSessions):
    """``layout``: its first two accumulators are the first event time and the latest end; ``list_word``: of the part's
    list, where there are lists.
    """

    def __init__(
        self,
        layout: RecordLayout,
        shards: Iterable[int],
        shard_count: int,
        resources: Resources,
        *,
        changelog: bool = False,
        list_word: int | None = None,
    ) -> None:
        super().__init__(layout, 0, shards, shard_count, resources, changelog=changelog)
        self._list_word = list_word

    # Rows to parts ---------------------------------------------------------------------------------------------------

    def merge(self, epoch: int, frames: Sequence[tuple[Rows, np.ndarray]]) -> Sequence[tuple[Rows, np.ndarray]]:
        placed = [(Rows(rows.words.copy(order="C"), rows.heap), bounds) for rows, bounds in frames]
        for low, high in self._pieces(placed):
            self._place([Rows(rows.words[bounds[low] : bounds[high]], rows.heap) for rows, bounds in placed])
        return super().merge(epoch, placed)

    def _pieces(self, frames: Sequence[tuple[Rows, np.ndarray]]) -> Iterator[tuple[int, int]]:
        """Ranges of shards with about so many rows."""
        before = np.sum([bounds for _, bounds in frames], axis=0) if frames else np.zeros(1, np.int64)
        low = 0
        while low < len(before) - 1:
            high = int(np.searchsorted(before, before[low] + _PIECE_ROWS, side="right")) - 1
            high = max(high, low + 1)
            if before[low] < before[high]:
                yield low, high
            low = high

    def _place(self, parts: Sequence[Rows]) -> None:
        """Write into these rows the numbers of the parts that they belong to, and their lists."""
        layout = self._store.layout
        keys = concat_rows([_keys_of(part, layout) for part in parts], layout.of_keys)
        numbers, firsts = numbers_of_keys(keys, layout)
        known, owners = self._parts_of(Rows(keys.words[firsts], keys.heap))
        old = len(known)
        every = np.concatenate([owners, numbers])
        starts, ends = (
            np.concatenate([known.words[:, word], *(part.words[:, word] for part in parts)])
            for word in (self._low, self._high)
        )
        sessions = sessions_of(every, starts, ends)
        of = sessions.numbers
        # A session goes on in one of its parts; one that has none makes the key's next.
        chosen = np.full(len(sessions), -1, np.int64)
        by_number = np.argsort(-known.words[:, PANE], kind="stable")  # of several the one with the smallest number
        chosen[of[by_number]] = by_number
        fresh = chosen < 0
        key = every[sessions.order[sessions.offsets[:-1]]]
        made_before: np.ndarray = np.cumsum(fresh) - fresh
        first_of_key = np.searchsorted(key, key)  # sessions come key by key
        made_number = np.bincount(owners, minlength=len(firsts))[key] + made_before - made_before[first_of_key]
        part_number = np.where(fresh, made_number, known.words[chosen, PANE] if old else 0)
        lists = None
        if self._list_word is not None:
            lists = np.where(fresh, sessions.starts, known.words[chosen, self._list_word] if old else 0)
        done = old
        for part in parts:
            own = of[done : done + len(part)]
            part.words[:, PANE] = part_number[own]
            if lists is not None:
                part.words[:, self._list_word] = lists[own]
            done += len(part)

    def _parts_of(self, keys: Rows) -> tuple[Rows, np.ndarray]:
        """Copies of all records of these keys, and the number of each one's key."""
        layout = self._store.layout
        order = np.argsort(keys.words[:, HASH] % self._shard_count, kind="stable")
        found, owners = [], [_NO_NUMBERS]
        first, steps = 0, 1
        while len(order):
            words = np.repeat(keys.words[order], steps, axis=0)
            words[:, PANE] = np.tile(np.arange(first, first + steps), len(order))
            bounds = np.searchsorted(words[:, HASH] % self._shard_count, np.arange(self._shard_count + 1))
            records = probes.current(self._store, Rows(words, keys.heap), bounds, keep=True)
            found += [Rows(part.words, part.heap) for part in records.parts]
            owners.append(order[records.numbers // steps])
            last = records.numbers[records.numbers % steps == steps - 1]
            order = order[np.sort(last // steps)]
            first, steps = first + steps, min(2 * steps, _STEPS_MAX)
        return concat_rows(found, layout), np.concatenate(owners)

    # Parts to sessions -----------------------------------------------------------------------------------------------

    def _sessions(self, shard: int, table: Table, rows: np.ndarray) -> Sessions:
        """Of records that are all of their keys."""
        keys, _ = numbers_of_keys(table.copy(rows), self._store.layout)
        found = sessions_of(keys, table.word(rows, self._low), table.word(rows, self._high))
        return Sessions(shard, table, rows[found.newest_first], found.offsets, found.starts, found.ends)

    def _around(self, shard: int, rows: np.ndarray) -> Sessions:
        own = dict(self._store.tables())[shard]
        changed = own.copy(rows)
        found = self._of_hashes(shard, np.unique(own.word(rows, HASH)))
        touched = np.zeros(found.table.rows, bool)
        touched[found.table.locate(changed)] = True
        return found.where(np.logical_or.reduceat(touched[found.rows], found.offsets[:-1]))

    def changed(self) -> Iterator[list[Sessions]]:
        yield from grouped(
            self._around(shard, rows[piece])
            for shard, table, rows in self._store.changes.in_tables()
            for piece in hash_pieces(table.word(rows, HASH), _PIECE_ROWS)
        )

    def _of_hashes(self, shard: int, hashes: np.ndarray) -> Sessions:
        """The sessions of all keys with these hashes, each named once, of copies of their records."""
        copies = RecordCopies(self._store, shard)
        first, steps = 0, 1
        while len(hashes):
            parts = np.tile(np.arange(first, first + steps), len(hashes))
            added = copies.add_with_hashes(np.repeat(hashes, steps), parts)
            last = added[copies.table.word(added, PANE) == first + steps - 1]
            hashes = np.unique(copies.table.word(last, HASH))
            first, steps = first + steps, min(2 * steps, _STEPS_MAX)
        return replace(self._sessions(shard, copies.table, np.arange(copies.table.rows)), copies=copies)

    def _ended_by(self, entries: np.ndarray, until: int, *, taken: bool) -> Iterator[list[Sessions]]:
        def ended(shard: int, hashes: np.ndarray) -> Sessions:
            found = self._of_hashes(shard, hashes)
            goes_on = found.ends > until
            if taken:
                firsts = found.table.word(found.rows[found.offsets[:-1]], HASH)[goes_on]
                own, places = np.unique(firsts, return_inverse=True)
                next_ends = np.full(len(own), np.iinfo(np.int64).max)
                np.minimum.at(next_ends, places, found.ends[goes_on])
                self._deadlines.put(next_ends, own)
            return found.where(~goes_on)

        shards = self.shards
        yield from grouped(
            ended(shard, hashes[piece])
            for shard, hashes in split_by_shard(np.unique(entries[:, ENTRY_HASH]), self._shard_count)
            if shard in shards
            for piece in hash_pieces(hashes, _PIECE_ROWS)
        )

    def former(self, found: Sequence[Sessions]) -> FormerSessions:
        assert self._before is not None, "no changelog is kept"
        return former_of_intervals(self._all(found), self._before, self._low, self._high)

    # Parts that go ---------------------------------------------------------------------------------------------------

    def remove(self, ended: Iterable[Sessions]) -> None:
        for sessions in ended:
            if len(sessions):
                self._remove(sessions)

    def _remove(self, sessions: Sessions) -> None:
        assert sessions.copies is not None
        copies, table = sessions.copies, sessions.table
        rows = np.arange(table.rows)
        keys, firsts = numbers_of_keys(table.copy(rows), self._store.layout)
        numbers = table.word(rows, PANE)
        gone = np.zeros(len(rows), bool)
        gone[sessions.rows] = True
        left = np.bincount(keys[~gone], minlength=len(firsts))[keys]
        holes = np.flatnonzero(gone & (numbers < left))
        moved = np.flatnonzero(~gone & (numbers >= left))
        # As many of the one as of the other, key by key.
        holes, moved = (at[np.lexsort((numbers[at], keys[at]))] for at in (holes, moved))
        filling = table.copy(moved, numbers[holes])
        copies.remove(np.concatenate([sessions.rows, moved]))
        if len(moved):
            bounds = np.where(np.arange(self._shard_count + 1) > sessions.shard, len(moved), 0)
            # Numbers of rows must stay: more sessions that were found are still to go.
            self._store.merge_more([(filling, bounds)], replace=True, fresh=True, hold=False)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore_rows(self, shard: int, rows: Rows) -> None:
        """Of records whose pane is their list: parts are numbered anew."""
        assert self._list_word is not None
        layout = self._store.layout
        table = table_of(rows, layout)
        records = table.copy(table.changed_rows())
        keys, _ = numbers_of_keys(records, layout)
        order = np.lexsort((records.words[:, PANE], keys))
        records.words[:, self._list_word] = records.words[:, PANE]
        in_order = keys[order]
        records.words[order, PANE] = np.arange(len(order)) - np.searchsorted(in_order, in_order)
        self._restore_records(shard, records)


def _keys_of(rows: Rows, layout: RecordLayout) -> Rows:
    """Copies of the keys, of part 0."""
    words = rows.words[:, : layout.of_keys.words].copy(order="C")
    words[:, PANE] = 0
    return Rows(words, rows.heap)
