"""The state of an aggregation as its user knows it: see ``operators.state_view``.

- Records of accumulators become the outputs that they would give now. Sliding windows are made of panes, as when they
  are emitted; those that have ended by the watermark are left out, though others still need some of their panes.
- Where rows are kept, they are shown as they are, each once: a row of sliding windows with its pane.
- An aggregate of a user's own functions is shown by its state, since checkpoints do not hold functions.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.errors import CheckpointError
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.accumulators import Output
from tailrace.operators.aggregate.describe import accumulator_text
from tailrace.operators.aggregate.finish import finish, window_struct
from tailrace.operators.aggregate.functions.user import state_fields
from tailrace.operators.aggregate.functions.values import Values
from tailrace.operators.aggregate.spec import START, AggregateSpec
from tailrace.operators.pattern import Pattern
from tailrace.operators.rows.row_index import pieces
from tailrace.operators.state_view import PANE as PANE_COLUMN
from tailrace.operators.state_view import Columns, StateView, spans
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows.columns import fixed_words
from tailrace.state.rows.groups import group_by_key
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import ValidBits, from_section
from tailrace.types import BIGINT, Field

Show = Callable[[AggregateSpec, pa.RecordBatch], Iterator[pa.RecordBatch]]

_WINDOWS_MAX = 1 << 19
"""Records of panes that are put together to windows at once, each counted once for every window that it is part of."""


def _rows(spec: AggregateSpec, section: pa.RecordBatch, horizon: int, *, records: bool) -> Iterator[pa.RecordBatch]:
    match spec.pattern:
        case Pattern.RMW if records:
            yield record_columns(spec, section)
        case Pattern.RMW:
            yield from _windows(spec, section, horizon)
        case Pattern.AAR:
            yield kept_rows(spec, section, window_of_rows(spec, section))
        case Pattern.AUR:
            section = without_list_columns(section)
            yield kept_rows(spec, section, window_of_rows(spec, section))


def _identity(spec: AggregateSpec, records: bool) -> int:
    if spec.pattern is not Pattern.RMW:
        return 0
    return record_identity(spec) if records else len(spec.keys) + spec.windowed


VIEW = StateView(_rows, _identity)


def view_by_key(kept: Show, windows: Show) -> StateView[AggregateSpec]:
    """Of windows that end key by key. ``kept``: of rows that are kept; ``windows``: of records, one window each."""

    def rows(spec: AggregateSpec, section: pa.RecordBatch, horizon: int, *, records: bool) -> Iterator[pa.RecordBatch]:
        if spec.pattern is not Pattern.RMW:
            yield from kept(spec, section)
        elif records:
            yield record_columns(spec, section)
        else:
            yield from windows(spec, section)

    def identity(spec: AggregateSpec, records: bool) -> int:
        if spec.pattern is not Pattern.RMW:
            return 0
        return record_identity(spec) if records else len(spec.keys) + 1

    return StateView(rows, identity)


# Records ------------------------------------------------------------------------------------------------------------


def record_identity(spec: AggregateSpec) -> int:
    return len(spec.kept_keys) + 1


def record_columns(spec: AggregateSpec, section: pa.RecordBatch) -> pa.RecordBatch:
    """Records as they are: keys, pane, and what each accumulator holds."""
    shown, first = Columns(), 2 + len(spec.kept_keys)
    shown.fields(spec.kept_keys, section.columns[2:first])
    shown.own(PANE_COLUMN, section.column(1))
    for accumulator, array in zip(spec.accumulators, section.columns[first:], strict=True):
        shown.own(accumulator_text(accumulator), array)
    return shown.batch()


def _windows(spec: AggregateSpec, section: pa.RecordBatch, horizon: int) -> Iterator[pa.RecordBatch]:
    layout = spec.record_layout()
    rows = from_section(section, layout)
    window = spec.pane_windows
    if window is None or window.tumbling:
        yield with_expiry(spec, finished(spec, rows, layout), rows, layout)
        return
    check_mergeable(spec)
    some = False
    for partials in _partials(window, rows, layout, horizon):
        some = True
        yield finished(spec, as_one(partials, layout), layout)
    if not some:
        yield finished(spec, Rows(rows.words[:0], rows.heap), layout)


def _partials(window: TimeWindowSpec, rows: Rows, layout: RecordLayout, horizon: int) -> Iterator[Rows]:
    """Records once for each open window that holds their pane, with its start: all of some keys at a time."""
    grouped, offsets = group_by_key(rows, layout)
    counts = np.diff(offsets) * -(-window.size // window.slide)
    for part in pieces(counts, at_most=_WINDOWS_MAX):
        words = grouped.words[offsets[part.start] : offsets[part.stop]]
        starts = np.ascontiguousarray(words[:, PANE])
        at, windows = window.holding(starts, MIN_MICROS)
        open_ = windows >= horizon
        at, windows = at[open_], windows[open_]
        order = np.argsort(starts[at], kind="stable")  # as emitted: older panes before newer ones
        words = words[at[order]]
        words[:, PANE] = windows[order]
        yield Rows(words, grouped.heap)


def as_one(partials: Rows, layout: RecordLayout) -> Rows:
    """Records of one key and pane merged, in their order."""
    merged = Table(layout, rows_expected=len(partials))
    merged.begin(len(partials))
    merged.merge(partials.words, partials.heap, 0, len(partials))
    return merged.copy(merged.changed_rows())


def check_mergeable(spec: AggregateSpec) -> None:
    """Windows of several records need the functions that merge these."""
    own = [out.name for out in spec.outputs if out.code is not None]
    if own:
        raise CheckpointError(
            f"The windows of operator {spec.name} are made of several records each, by your own function "
            f"({', '.join(own)}), and checkpoints hold no functions. Read its records as they are: records=True, "
            "--records, or the data source's option records."
        )


def finished(spec: AggregateSpec, rows: Rows, layout: RecordLayout, ends: np.ndarray | None = None) -> pa.RecordBatch:
    """Records whose pane is their window's start as the operator's output has them."""
    known = [out for out in spec.outputs if out.code is None]
    # A sum that overflowed is null here: it must not keep anybody from reading the others.
    plain = replace(spec, ansi=False, changelog=False, outputs=tuple(known))
    batch = finish(rows, plain, layout, ends)
    if len(known) == len(spec.outputs):
        return batch
    groups, shown = batch.num_columns - len(known), Columns()
    for name, array in list(zip(batch.schema.names, batch.columns, strict=True))[:groups]:
        shown.add(name, array)
    for out in spec.outputs:
        shown.add(out.name, batch.column(out.name) if out.code is None else _state(spec, out, rows, layout))
    return shown.batch()


def _state(spec: AggregateSpec, out: Output, rows: Rows, layout: RecordLayout) -> pa.Array:
    valid = ValidBits(rows)
    values = [Values(rows, valid, layout.accumulators[i], spec.accumulators[i]) for i in out.accumulators]
    arrays = [each.array(each.place.type) for each in values]
    return pa.StructArray.from_arrays(arrays, names=[name for name, _ in state_fields(out.arguments)])


def with_expiry(spec: AggregateSpec, batch: pa.RecordBatch, rows: Rows, layout: RecordLayout) -> pa.RecordBatch:
    """With a time-to-live the first accumulator, of windows by count the second, is when a key was last updated."""
    if spec.ttl is None:
        return batch
    shown = Columns(list(batch.schema.names), list(batch.columns))
    place = layout.accumulators[0 if spec.window is None else 1]
    shown.expiry(spec.ttl, pa.array(np.ascontiguousarray(rows.words[:, place.word])))
    return shown.batch()


# Rows ---------------------------------------------------------------------------------------------------------------


def without_list_columns(section: pa.RecordBatch) -> pa.RecordBatch:
    """A section of lists that has no tombstones, as one of rows."""
    return section.select(range(2, section.num_columns)) if section.num_columns else section


def kept_rows(
    spec: AggregateSpec, section: pa.RecordBatch, window: pa.Array | None, *own: tuple[str, pa.Array]
) -> pa.RecordBatch:
    """Rows as they were sent, with their window. ``own``: columns of ours behind them."""
    shown, first = Columns(), 2 + len(spec.kept_keys)
    keys = list(zip(spec.keys, section.columns[2:], strict=False))
    at = spec.window_position if spec.windowed else len(keys)
    shown.fields(*_apart(keys[:at]))
    sliding = window is not None and _slides(spec)
    if window is not None and not sliding:
        shown.add(spec.window_name, window)
    shown.fields(*_apart(keys[at:]))
    shown.fields(spec.rows, section.columns[first:])
    if window is not None and sliding:
        shown.own(PANE_COLUMN, window)
    for name, array in own:
        shown.own(name, array)
    return shown.batch()


def _apart(pairs: list[tuple[Field, pa.Array]]) -> tuple[list[Field], list[pa.Array]]:
    return [one for one, _ in pairs], [other for _, other in pairs]


def _slides(spec: AggregateSpec) -> bool:
    if spec.count_window is not None:
        return spec.count_window.overlapping
    return spec.time_window is not None and not spec.time_window.tumbling


def window_of_rows(spec: AggregateSpec, section: pa.RecordBatch) -> pa.Array | None:
    """The window, or where these overlap the pane, that rows lie in."""
    panes = fixed_words(section.column(1), BIGINT, None)
    if spec.custom_window is not None:
        starts = section.column(2 + len(spec.keys)).cast(pa.int64()).to_numpy()
        assert spec.kept_keys[-1].name == START
        return window_struct(starts, spec, panes)
    if spec.time_window is None:
        return None
    if spec.time_window.tumbling:
        return window_struct(panes, spec)
    return pane_spans(spec.time_window, panes, spec)


def pane_spans(window: TimeWindowSpec, panes: np.ndarray, spec: AggregateSpec) -> pa.Array:
    assert spec.time_column is not None
    return spans(panes, window.panes.ends(panes), spec.time_column.type)
