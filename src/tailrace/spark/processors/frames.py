"""Rows of a batch of keys as pandas frames, one for each key, and frames that a user's function gives as Arrow.

Frames are those that Spark makes: times in the session's zone without saying so, nulls of numbers as NaN. What a key's
frame looks like depends on its own rows alone, and not on those of the keys that it shares a batch with.

Threads: pure but for ``FrameOutput``, which belongs to one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc


class KeyFrames:
    """``widened``: whole numbers as 64 bits and floats as doubles, as ``transformWithStateInPandas`` gives them."""

    def __init__(self, rows: pa.Table, timezone: str, *, widened: bool) -> None:
        self._rows = _local(_widened(rows) if widened else rows, timezone)
        self._indexes: dict[int, pd.RangeIndex] = {}
        nulls = np.zeros(len(rows), np.int64)
        filled = self._rows
        for number, column in enumerate(self._rows.columns):
            if column.null_count and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
                nulls |= np.asarray(pc.is_null(column), np.int64)
                name = self._rows.column_names[number]
                filled = filled.set_column(number, name, column.fill_null(pa.scalar(0).cast(column.type)))
        # A null makes a column of numbers floats, or objects: only for the key that has it.
        self._nulls_before = np.concatenate([[0], np.cumsum(nulls)]).tolist()
        self._frame = _frame(filled)

    def rows(self, low: int, high: int) -> pd.DataFrame:
        if self._nulls_before[low] != self._nulls_before[high]:
            return _frame(self._rows.slice(low, high - low))
        frame = self._frame.iloc[low:high]
        index = self._indexes.get(high - low)
        if index is None:
            index = self._indexes[high - low] = pd.RangeIndex(high - low)
        frame.index = index
        frame._is_copy = None  # rows of this key alone: a user may change them, without a warning
        return frame

    @property
    def empty(self) -> pd.DataFrame:
        """No rows, and columns of no type."""
        return pd.DataFrame(columns=self._frame.columns)


def key_values(keys: pa.Table, timezone: str, *, widened: bool = True) -> list[tuple[Any, ...]]:
    """Keys as they are in frames: values of Python and pandas; not ``widened``: of numpy, as a column gives them."""
    columns: list[list[Any]] = []
    for column in _local(keys, timezone).columns:
        series = column.drop_null().to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True)
        there = iter(series.tolist() if widened else series.array)
        missing = np.nan if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) else None
        missing = pd.NaT if pa.types.is_timestamp(column.type) else missing
        valid = column.is_valid().to_pylist() if column.null_count else None
        columns.append(list(there) if valid is None else [next(there) if each else missing for each in valid])
    return list(zip(*columns, strict=True))


class FrameOutput:
    """Frames that a function gives, held to a schema: by names where columns have any, as Spark, else by position."""

    def __init__(self, schema: pa.Schema, timezone: str) -> None:
        self._schema = schema
        self._timezone = timezone
        self._alike: dict[Any, list[pd.DataFrame]] = {}

    def add(self, frame: object) -> None:
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"each result must be a pandas.DataFrame, but one is a {type(frame).__name__}")
        if len(frame.columns) == 0 and not len(frame):
            return
        # Frames of one form are put together: a column of others would change its type with them.
        form = (*frame.columns, *((block.dtype, block.mgr_locs.as_array.tobytes()) for block in _blocks(frame)))
        self._alike.setdefault(form, []).append(frame)

    def table(self) -> pa.Table:
        parts = [self._converted(_joined(frames)) for frames in self._alike.values()]
        return pa.concat_tables(parts) if parts else self._schema.empty_table()

    def _converted(self, frame: pd.DataFrame) -> pa.Table:
        names = self._schema.names
        if any(isinstance(column, str) for column in frame.columns):
            missing = [name for name in names if name not in frame.columns]
            if missing:
                raise ValueError(
                    f"a result has the columns {', '.join(map(str, frame.columns))}, and none called {missing[0]!r} of "
                    f"the output's schema"
                )
            series = [frame[name] for name in names]
        elif len(frame.columns) == len(names):
            series = [frame.iloc[:, number] for number in range(len(names))]
        else:
            raise ValueError(f"a result has {len(frame.columns)} columns, and the output's schema has {len(names)}")
        arrays = [self._array(each, field) for each, field in zip(series, self._schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _array(self, series: pd.Series, field: pa.Field) -> pa.Array:
        zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
        if zoned and isinstance(series.dtype, np.dtype) and series.dtype.kind == "M":
            series = series.dt.tz_localize(self._timezone, ambiguous=False, nonexistent="shift_forward")
        try:
            return pa.Array.from_pandas(series, type=field.type, safe=True)
        except pa.ArrowException as error:
            try:
                return pa.Array.from_pandas(series).cast(field.type)
            except pa.ArrowException:
                raise TypeError(
                    f"column {field.name!r} of a result has values of {series.dtype} that are no {field.type}: {error}"
                ) from error


def _blocks(frame: pd.DataFrame) -> Sequence[Any]:
    """Its columns as they lie in memory, those of one type together.

    Not for the public: but each way to a column's type or values that is makes an object for each column, which takes
    more time than the user's function where a key has few rows.
    """
    blocks: Sequence[Any] = frame._mgr.blocks
    return blocks


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Frames of one form, one below the other."""
    blocks = _blocks(frames[0])
    if not all(isinstance(block.values, np.ndarray) for block in blocks):
        return pd.concat(frames, ignore_index=True)
    columns: dict[int, np.ndarray] = {}
    for number, block in enumerate(blocks):
        values = np.concatenate([_blocks(frame)[number].values for frame in frames], axis=1)
        columns |= dict(zip(block.mgr_locs.as_array.tolist(), values, strict=True))
    joined = pd.DataFrame({place: columns[place] for place in sorted(columns)}, copy=False)
    joined.columns = frames[0].columns
    return joined


def _frame(rows: pa.Table) -> pd.DataFrame:
    return rows.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True)


def _local(rows: pa.Table, timezone: str) -> pa.Table:
    """Times with a zone as the wall clock of the session shows them."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            zoned = rows.column(number).cast(pa.timestamp("us", timezone))
            rows = rows.set_column(number, field.name, pc.local_timestamp(zoned))
    return rows


def _widened(rows: pa.Table) -> pa.Table:
    fields = [pa.field(field.name, _wide(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _wide(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(type_):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(type_) else type_
