"""Where the columns of rows lie that tasks send. Pure."""

from __future__ import annotations

from tailrace.operators.spec import SentRows
from tailrace.state.layout import AccumulatorWords, KeyWords, RecordLayout


def place_of(spec: SentRows, name: str, layout: RecordLayout) -> KeyWords | AccumulatorWords:
    keys = [key.name for key in spec.keys]
    if name in keys:
        return layout.keys[keys.index(name)]
    return layout.accumulators[[row.name for row in spec.rows].index(name)]


def time_place(spec: SentRows, layout: RecordLayout) -> KeyWords | AccumulatorWords | None:
    """Where the event time lies; None: there is none."""
    return None if spec.time_column is None else place_of(spec, spec.time_column.name, layout)


def time_word(spec: SentRows, layout: RecordLayout) -> int:
    """The word of the event time, of rows that have one."""
    place = time_place(spec, layout)
    assert place is not None, "rows without an event time"
    return place.word
