"""Rows compared without regard to their order."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

_SHOWN = 5
_LONGEST = 40


class RowsDiffer(AssertionError):
    """Two tables do not hold the same rows; the message shows the first that only one of them has."""


def same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Raises ``RowsDiffer`` unless both hold the same rows, each as often. Columns are matched by name.

    Widths of integers, scales of decimals and units of timestamps may differ; a timestamp without a zone is UTC.
    """
    if set(found.column_names) != set(expected.column_names):
        raise RowsDiffer(
            f"columns differ: found {sorted(found.column_names)}, expected {sorted(expected.column_names)}"
        )
    found, expected = _plain(found.select(expected.column_names)), _plain(expected)
    with duckdb.connect() as database:
        database.register("found", found)
        database.register("expected", expected)
        extra = database.sql("FROM found EXCEPT ALL FROM expected").to_arrow_table()
        missing = database.sql("FROM expected EXCEPT ALL FROM found").to_arrow_table()
    if not extra.num_rows and not missing.num_rows:
        return
    lines = [f"{found.num_rows} rows found, {expected.num_rows} expected"]
    for what, rows in (("found but not expected", extra), ("expected but not found", missing)):
        lines.append(f"{rows.num_rows} {what}{':' if rows.num_rows else ''}")
        order = [(name, "ascending") for name in rows.column_names]
        lines += [f"  {_shown(row)}" for row in rows.sort_by(order).slice(0, _SHOWN).to_pylist()]
    raise RowsDiffer("\n".join(lines))


def _shown(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={str(value)[:_LONGEST]}" for name, value in row.items())


def _plain(table: pa.Table) -> pa.Table:
    fields = []
    for field in table.schema:
        kind = pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(field.type) else field.type
        fields.append(pa.field(field.name, kind))
    return table.cast(pa.schema(fields))
