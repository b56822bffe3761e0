"""Sections of the best rows of each key: the rows with their own types, all of a key that changed.

They stand in place of the key's rows in earlier sections. With a time-to-live each row also has when its key was last
updated; an entry without that is a tombstone: the key is forgotten.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.operators.rows.keyed import keyed
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.state.layout import VALID, AccumulatorWords, RecordLayout
from tailrace.state.rows.packed_rows import pack, unpack
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.compaction import compact_lists
from tailrace.state.sections.sections import from_section, to_section


def to_rows(section: pa.RecordBatch, spec: TopNSpec) -> pa.RecordBatch:
    """A section of records as one of their rows, the best of each key first."""
    records = from_section(section, spec.kept().layout())
    if spec.ttl is None:
        return to_section(unpack(records, spec.layout())[0], spec.section_layout())
    kept, layout = spec.kept().layout(), spec.section_layout()
    there = _there(records, kept.accumulators[1])
    live = Rows(records.words[there], records.heap)
    rows, starts = unpack(live, spec.layout())
    words = with_update(rows.words, np.repeat(live.words[:, kept.accumulators[1].word], np.diff(starts)), layout)
    if there.all():
        return to_section(Rows(words, rows.heap), layout)
    gone = records.words[~there]
    keys = layout.accumulators[0].word
    tombs = np.zeros((len(gone), layout.words), np.int64)
    tombs[:, :keys] = gone[:, :keys]
    tombs[:, VALID] &= layout.key_mask
    return to_section(concat_rows([Rows(tombs, records.heap), Rows(words, rows.heap)], layout), layout)


def to_records(section: pa.RecordBatch, spec: TopNSpec) -> pa.RecordBatch:
    layout, kept = spec.layout(), spec.kept().layout()
    rows = from_section(section, spec.section_layout())
    groups = keyed(rows, layout)
    order = np.argsort(groups.numbers, kind="stable")
    if spec.ttl is None:
        return to_section(pack(rows, order, _edges(groups.sizes), layout), kept)
    updated = spec.section_layout().accumulators[-1]
    there = _there(rows, updated)
    # A key that is there again stands beside its own tombstone.
    sizes = np.bincount(groups.numbers[there], minlength=len(groups))
    times = np.zeros(len(groups), np.int64)
    times[groups.numbers[there]] = rows.words[there, updated.word]
    live = sizes > 0
    own = np.ascontiguousarray(rows.words[:, : layout.words])
    own[:, VALID] &= ~(1 << updated.bit)
    packed = pack(Rows(own, rows.heap), order[there[order]], _edges(sizes[live]), layout)
    records = Rows(with_update(packed.words, times[live], kept), packed.heap)
    keys = layout.accumulators[0].word
    tombs = np.zeros((int((~live).sum()), kept.words), np.int64)
    tombs[:, :keys] = rows.words[groups.firsts[~live], :keys]
    tombs[:, VALID] &= kept.key_mask
    return to_section(concat_rows([Rows(tombs, rows.heap), records], kept), kept)


def compact_sections(
    spec: TopNSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool = False
) -> pa.RecordBatch:
    """One section that stands for several, oldest first: of each key the rows of the newest that has any.

    ``complete``: there are none before them, and tombstones go.
    """
    return compact_lists(spec.section_layout(), batches, horizon, removes=spec.ttl is not None, bury=complete)


def with_update(words: np.ndarray, times: np.ndarray, layout: RecordLayout) -> np.ndarray:
    """Rows or records with one more value behind all others: when their key was last updated."""
    out = np.empty((len(words), layout.words), np.int64)
    out[:, :-1] = words
    out[:, VALID] |= 1 << layout.accumulators[-1].bit
    out[:, -1] = times
    return out


def _there(rows: Rows, place: AccumulatorWords) -> np.ndarray:
    there: np.ndarray = rows.words[:, VALID] >> place.bit & 1 == 1
    return there


def _edges(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
