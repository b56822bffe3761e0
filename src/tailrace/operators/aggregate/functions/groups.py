"""Columns of groups of rows, for aggregates that look at values: without nulls, and as lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.operators.rows.groups import Groups


def present_values(groups: Groups, column: str, *beside: str) -> Any:
    """The values that are not null, the numbers of their groups, and the same rows of other columns."""
    values, numbers = groups.columns[column], groups.numbers
    others = [groups.columns[name] for name in beside]
    if values.null_count == 0:
        return values, numbers, *others
    there = pc.is_valid(values)
    numbers = numbers[np.asarray(there.to_numpy(zero_copy_only=False), bool)]
    return values.filter(there), numbers, *(other.filter(there) for other in others)


def lists(values: pa.Array, counts: np.ndarray) -> pa.Array:
    """Lists of so many of the values each."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"lists of {offsets[-1]:,} values in one batch: at most 2,147,483,647 fit")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
