"""Several columns of a row in one text, for aggregates that take one column: `last` of a whole row, a list of rows.

Columns are put one after the other with a character between them that no generated text holds. A number that texts are
to be ordered by comes first and is padded with zeros.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

_BETWEEN = "\x01"
_DIGITS = 19  # of the largest bigint


def packed(first: str, *others: str) -> Column:
    """``first`` is a whole number that is not negative: of two texts, the one with the larger number is the larger."""
    padded = F.lpad(F.col(first).cast("string"), _DIGITS, "0")
    return F.concat_ws(_BETWEEN, padded, *(F.col(name).cast("string") for name in others))


def unpacked(texts: pa.Array | pa.ChunkedArray, columns: pa.Schema) -> dict[str, pa.ChunkedArray]:
    """The columns again, under the names and with the types given. Times must have been packed as whole numbers."""
    parts = pc.split_pattern(texts, _BETWEEN)
    return {
        field.name: pc.list_element(parts, place).cast(pa.int64()).cast(field.type)
        if not pa.types.is_string(field.type)
        else pc.list_element(parts, place)
        for place, field in enumerate(columns)
    }
