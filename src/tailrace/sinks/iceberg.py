"""An Iceberg table: an epoch is one commit to its catalogue, with the entry among the table's properties.

Entry: the property ``tailrace.<query>``, as ``<run>:<epoch>``. Snapshots have the same in their summaries, for people;
a snapshot may expire while a query stands still, a property does not.

The library repeats a commit that another one has overtaken, on top of that other one. A replaced run would win so; this
is switched off in the handle alone, as the table's own setting would be everybody's. Each commit adds a snapshot, also
the one by which a run takes over: of two runs that go on from the same snapshot only one can commit.

Rows are appended in pieces of bounded size, all of them in one commit. An upsert holds an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.upsert_util import create_match_filter

from tailrace.api.table_options import IcebergOptions, WriteMode
from tailrace.errors import AnalysisError, TableError
from tailrace.sinks.contract import Unreachable, one_line
from tailrace.sinks.lake import LakeTable
from tailrace.sinks.rows import (
    Form,
    check_key_columns,
    deletions,
    last_of_keys,
    without_empty,
    without_preimages,
)

_PIECE_BYTES = 64 << 20
_RETRIES = "commit.retry.num-retries"
_LOST = ("OperationalError", "InterfaceError", "TimeoutError")
"""What databases behind a catalogue call troubles of the connection. Which one it is, is not known: so by name."""


class IcebergTable(LakeTable[Table]):
    def __init__(self, options: IcebergOptions, schema: pa.Schema) -> None:
        self._options = options
        form = Form.of(schema, options)
        self._schema, self._mode, self._changes, self._given = form.schema, form.mode, form.changes, form.given
        self.shown = f"the Iceberg table {options.table}"
        check_key_columns(self.shown, schema, self._mode, options.key_columns)

    def _errors(self) -> AbstractContextManager[None]:
        return _errors(self.shown)

    def _read(self) -> tuple[Table, pa.Schema]:
        settings = {name.removeprefix("catalog."): value for name, value in self._options.settings}
        table = self._loaded(load_catalog(self._options.catalog, **settings))
        return table, table.schema().as_arrow()

    def _refresh(self) -> None:
        self._opened.refresh()

    def _loaded(self, catalog: Catalog) -> Table:
        name = self._options.table
        try:
            return catalog.load_table(name)
        except NoSuchTableError:
            try:
                return catalog.create_table(name, self._schema)
            except TableAlreadyExistsError:
                return catalog.load_table(name)
            except NoSuchNamespaceError as error:
                raise AnalysisError(f"{self.shown}: its namespace does not exist in the catalogue: make it") from error

    # The entry -------------------------------------------------------------------------------------------------------

    @property
    def _property(self) -> str:
        return f"tailrace.{self._owner.query}"

    def _entry(self) -> tuple[int, int]:
        run, _, epoch = self._opened.properties.get(self._property, "-1:-1").partition(":")
        return int(run), int(epoch)

    def _commit(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        entry = {self._property: f"{self._owner.run}:{epoch}"}
        self._opened.metadata.properties[_RETRIES] = "0"  # of this handle, until it reads the table anew
        transaction = self._opened.transaction()
        transaction.set_properties(entry)
        # Also without rows: the snapshot is what another run's commit collides with.
        transaction.append(self._table_of([]), snapshot_properties=entry)
        if self._mode is WriteMode.APPEND:
            self._append(transaction, rows, entry)
        else:
            self._upsert(transaction, rows, entry)
        before_commit()
        transaction.commit_transaction()

    # The rows --------------------------------------------------------------------------------------------------------

    def _append(self, transaction: Transaction, rows: Iterator[pa.RecordBatch], entry: dict[str, str]) -> None:
        piece: list[pa.RecordBatch] = []
        for batch in without_empty(rows):
            piece.append(batch)
            if sum(each.nbytes for each in piece) > _PIECE_BYTES:
                transaction.append(self._table_of(piece), snapshot_properties=entry)
                piece = []
        if piece:
            transaction.append(self._table_of(piece), snapshot_properties=entry)

    def _upsert(self, transaction: Transaction, rows: Iterator[pa.RecordBatch], entry: dict[str, str]) -> None:
        keys = list(self._options.key_columns)
        given = pa.Table.from_batches(map(without_preimages, rows) if self._changes else rows, self._given)
        source = last_of_keys(given, keys)
        null = next((key for key in keys if source[key].null_count), None)
        if null is not None:
            raise TableError(
                f"{self.shown}: a row has null in its key column {null!r}, by which no row is found in an Iceberg "
                f"table: give such rows a value"
            )
        if self._changes:
            gone, source = deletions(source)
            if gone.num_rows:
                transaction.delete(create_match_filter(gone, keys), snapshot_properties=entry)
        if source.num_rows:
            transaction.upsert(source.select(self._names), join_cols=keys, snapshot_properties=entry)

    def _table_of(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches, self._schema).select(self._names)


@contextmanager
def _errors(shown: str) -> Iterator[None]:
    """The library's errors by what a caller does about them."""
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException) as error:
        raise Unreachable(f"another commit came first: {one_line(error)}") from error
    except (OSError, RESTError) as error:
        raise Unreachable(one_line(error)) from error
    except (ValueError, pa.ArrowException) as error:
        raise TableError(
            f"{shown} does not take the rows: {one_line(error)}. Nothing of the epoch was kept and nothing is lost: "
            f"mend that, and start the query again"
        ) from error
    except Exception as error:
        if {kind.__name__ for kind in type(error).__mro__}.isdisjoint(_LOST):
            raise
        raise Unreachable(one_line(error)) from error
