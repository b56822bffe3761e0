"""What a user asks for, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tailrace.api.columns import ColumnOrName, check_key, resolve
from tailrace.api.relations import UnchangingRows
from tailrace.errors import AnalysisError
from tailrace.types import BIGINT, Field

if TYPE_CHECKING:  # state servers start without it
    from tailrace.api.stream import Stream


@dataclass(frozen=True)
class RowNumbering(UnchangingRows):
    """A stream with the number of each row among the rows of its key. ``limit``: later rows are left out."""

    unchanging: ClassVar[str] = "rows that are numbered never change"

    name: str
    limit: int | None

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.schema, Field(self.name, BIGINT))


def row_number(stream: Stream, *cols: ColumnOrName, name: str = "row_number", limit: int | None = None) -> Stream:
    """Each row with its number among the rows of its key so far, from 1 on, in a column ``name``.

    Rows count epoch by epoch; inside an epoch by event time where the stream has one (by its watermark), then as they
    come. ``limit``: only the first so many rows of each key are given. No row is late. A number is kept for each key,
    for ever.

    >>> first_bids = bids.pipe(row_number, "auction", limit=3)
    """
    where = "row_number"
    if not cols:
        raise AnalysisError(f"{where} needs the columns of the key: stream.pipe(row_number, 'user')")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise AnalysisError(f"{where}: limit must be a whole number from 1 on, but is {limit!r}")
    if stream.brought_window is not None and stream.brought_window.name in stream.columns:
        raise AnalysisError(
            f"{where}: these rows come with a window, {stream.brought_window.name!r}, which cannot be kept beside a "
            f"row: number them before you group, or in foreachBatch"
        )

    def made(stream: Stream, names: Sequence[str]) -> Stream:
        keys = tuple(resolve(col, stream.schema, where) for col in names)
        for key in keys:
            check_key(key, where)
        return stream.derived(RowNumbering(stream.source, stream.schema, stream.watermark, keys, name, limit))

    return stream.by_keys(cols, where, made)
