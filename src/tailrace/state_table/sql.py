"""SQL over a checkpoint, by DuckDB: each operator is a table, and is read anew for each time that a query names it.

Nothing is copied: DuckDB takes an operator's batches as they are read, and puts what it has to keep on disk beyond a
budget. Names of tables are those of operators, with ``_`` for what SQL would want in quotes.

Threads: one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from tailrace.env.files.scratch import temporary_folder
from tailrace.errors import CheckpointError, TailraceError
from tailrace.state_table.changes import StateChanges
from tailrace.state_table.checkpoint import SavedState
from tailrace.state_table.operator_state import OperatorState

MEMORY = "1GB"
"""What DuckDB keeps in memory of sorts, joins and groups."""

CHANGES = "_changes"
"""After an operator's name: the table of what has changed."""

_NO_WORD = re.compile(r"\W")


def table_name(operator: str) -> str:
    """
    >>> table_name("aggregate-2")
    'aggregate_2'
    """
    return _NO_WORD.sub("_", operator)


class _Table:
    """An operator as DuckDB reads it: anew each time. An error keeps its own words, which a stream would bury."""

    def __init__(self, operator: OperatorState | StateChanges, errors: list[TailraceError]) -> None:
        self._operator = operator
        self._errors = errors

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._operator.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._operator.batches()
        except TailraceError as error:
            self._errors.append(error)
            raise


@contextmanager
def sql(
    state: SavedState, query: str, *, records: bool = False, since: int | None = None, memory: str = MEMORY
) -> Iterator[pa.RecordBatchReader]:
    """The rows of a query over an epoch's operators, to be read inside. ``records``: see ``OperatorState``.

    ``since``: another epoch, for tables of what has changed after it.
    """
    tables = _tables(state, records, since)
    errors: list[TailraceError] = []
    with temporary_folder() as folder, duckdb.connect(":memory:") as database:
        database.execute("SET autoinstall_known_extensions = false")  # nothing is fetched from a network
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"SET memory_limit = '{memory}'")
        database.execute(f"SET temp_directory = '{folder}'")
        for name, table in tables.items():
            database.register(name, _Table(table, errors))
        try:
            yield database.execute(query).to_arrow_reader()
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise errors[0] if errors else _explained(error, state, list(tables)) from error


def _tables(state: SavedState, records: bool, since: int | None) -> dict[str, OperatorState | StateChanges]:
    tables: dict[str, OperatorState | StateChanges] = {}
    for name in state.operators:
        tables[table_name(name)] = state[name].as_records() if records else state[name]
        if since is not None:
            tables[table_name(name) + CHANGES] = state.changes(name, since, records=records)
    return tables


def _explained(error: Exception, state: SavedState, tables: list[str]) -> CheckpointError:
    said = str(error).strip()
    if isinstance(error, duckdb.CatalogException):
        return CheckpointError(f"{said}\n\nThe tables at {state.location} are: {', '.join(tables) or 'none'}.")
    return CheckpointError(said)
