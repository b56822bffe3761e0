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
from tailrace.state_table.checkpoint import SavedState
from tailrace.state_table.operator_state import OperatorState

MEMORY = "1GB"
"""What DuckDB keeps in memory of sorts, joins and groups."""

_NO_WORD = re.compile(r"\W")


def table_name(operator: str) -> str:
    """
    >>> table_name("aggregate-2")
    'aggregate_2'
    """
    return _NO_WORD.sub("_", operator)


class _Table:
    """An operator as DuckDB reads it: anew each time. An error keeps its own words, which a stream would bury."""

    def __init__(self, operator: OperatorState, errors: list[TailraceError]) -> None:
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
    state: SavedState, query: str, *, records: bool = False, memory: str = MEMORY
) -> Iterator[pa.RecordBatchReader]:
    """The rows of a query over an epoch's operators, to be read inside. ``records``: see ``OperatorState``."""
    errors: list[TailraceError] = []
    with temporary_folder() as folder, duckdb.connect(":memory:") as database:
        database.execute("SET autoinstall_known_extensions = false")  # nothing is fetched from a network
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"SET memory_limit = '{memory}'")
        database.execute(f"SET temp_directory = '{folder}'")
        for name in state.operators:
            operator = state[name]
            database.register(table_name(name), _Table(operator.as_records() if records else operator, errors))
        try:
            yield database.execute(query).to_arrow_reader()
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise errors[0] if errors else _explained(error, state) from error


def _explained(error: Exception, state: SavedState) -> CheckpointError:
    known = ", ".join(table_name(name) for name in state.operators) or "none"
    said = str(error).strip()
    if isinstance(error, duckdb.CatalogException):
        return CheckpointError(f"{said}\n\nThe tables at {state.location} are: {known}.")
    return CheckpointError(said)
