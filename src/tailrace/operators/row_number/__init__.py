"""Numbers the rows of each key, in the order in which they count: ``stream.pipe(row_number, "key")``."""

from tailrace.operators.row_number.relation import row_number

__all__ = ["row_number"]
