"""Whether an engine's rows are the oracle's, in any order, and if not, where they differ first."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import TailraceError


class WrongAnswerError(TailraceError):
    """An engine's answer is not the oracle's: a fault of the engine or of the workload, never of the user."""


def check_rows(what: str, found: pa.Table, expected: pa.Table) -> None:
    """Both as multisets of rows. Types may differ as long as the values fit the expected ones."""
    if set(found.column_names) != set(expected.column_names):
        raise WrongAnswerError(
            f"{what}: the answer has the columns {', '.join(found.column_names)}; "
            f"expected {', '.join(expected.column_names)}"
        )
    try:
        found = found.select(expected.column_names).cast(expected.schema)
    except pa.ArrowInvalid as error:
        raise WrongAnswerError(f"{what}: the answer does not fit the expected types: {error}") from error
    order = [(name, "ascending") for name in expected.column_names]
    found, expected = found.sort_by(order).combine_chunks(), expected.sort_by(order).combine_chunks()
    if found.equals(expected):
        return
    raise WrongAnswerError(
        f"{what} gives a wrong answer: {found.num_rows:,} rows, expected {expected.num_rows:,}; "
        f"{_first(found, expected)}"
    )


def _first(found: pa.Table, expected: pa.Table) -> str:
    shared = min(found.num_rows, expected.num_rows)
    first = shared
    for name in expected.column_names:
        a, b = found[name].slice(0, shared), expected[name].slice(0, shared)
        differ = pc.if_else(
            pc.and_(pc.is_valid(a), pc.is_valid(b)), pc.not_equal(a, b), pc.xor(pc.is_null(a), pc.is_null(b))
        )
        at = pc.index(differ, True).as_py()
        if at >= 0:
            first = min(first, at)
    one = [table.slice(first, 1).to_pylist() for table in (found, expected)]
    shown = [str(rows[0]) if rows else "no row" for rows in one]
    return f"in sorted order they differ first at row {first:,}: {shown[0]}, expected {shown[1]}; --work keeps all rows"
