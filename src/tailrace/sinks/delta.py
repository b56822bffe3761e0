"""A Delta table: an epoch is a version of the table, with the query's transaction identifiers in its commit.

Entry: the identifiers ``tailrace-<query>`` with the epoch and ``tailrace-run-<query>`` with the run as their versions,
Delta's own way to name what an application has written. The library records them, and refuses no commit for what they
say. So each commit goes through a handle that was read before: where another commit has one of its identifiers since,
it fails. Every commit has both, also the one by which a run takes over: so of two runs that write at once one wins.

An append streams. A merge takes the last row of each key first, so it holds an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tailrace.api.table_options import DeltaOptions, WriteMode
from tailrace.env import tasks
from tailrace.errors import AnalysisError, TableError
from tailrace.sinks.contract import Unreachable, one_line
from tailrace.sinks.lake import LakeTable
from tailrace.sinks.rows import (
    CHANGE_TYPE,
    DELETE,
    Form,
    check_key_columns,
    last_of_keys,
    without_empty,
    without_preimages,
)


class DeltaFolder(LakeTable[DeltaTable]):
    def __init__(self, options: DeltaOptions, schema: pa.Schema) -> None:
        self._options = options
        form = Form.of(schema, options)
        self._schema, self._mode, self._changes, self._given = form.schema, form.mode, form.changes, form.given
        self.shown = f"the Delta table {options.path}"
        check_key_columns(self.shown, schema, self._mode, options.key_columns)
        self._storage = {name.removeprefix("storage."): value for name, value in options.storage}

    def _errors(self) -> AbstractContextManager[None]:
        return _errors(self.shown)

    def _read(self) -> tuple[DeltaTable, pa.Schema]:
        try:
            table = DeltaTable(self._options.path, storage_options=self._storage)
        except TableNotFoundError:
            with suppress(CommitFailedError):  # somebody else has made it
                DeltaTable.create(self._options.path, self._schema, storage_options=self._storage, mode="ignore")
            table = DeltaTable(self._options.path, storage_options=self._storage)
        return table, pa.schema(table.schema())

    def _refresh(self) -> None:
        self._opened.update_incremental()

    def _commit(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        if self._mode is WriteMode.APPEND:
            self._append(epoch, rows, before_commit)
        else:
            self._merge(epoch, rows, before_commit)

    @property
    def _ids(self) -> tuple[str, str]:
        return f"tailrace-run-{self._owner.query}", f"tailrace-{self._owner.query}"

    def _entry(self) -> tuple[int, int]:
        run, epoch = (self._opened.transaction_version(name) for name in self._ids)
        return -1 if run is None else run, -1 if epoch is None else epoch

    def _identified(self, epoch: int) -> CommitProperties:
        versions = (self._owner.run, epoch)
        named = [Transaction(name, version) for name, version in zip(self._ids, versions) if version >= 0]
        return CommitProperties(app_transactions=named)

    def _append(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        failed: list[BaseException] = []

        def all_rows() -> Iterator[pa.RecordBatch]:
            try:
                yield from (batch.select(self._names) for batch in without_empty(rows))
                # The library commits when there are no more rows. Its own thread must not wait for another runtime.
                worker = tasks.worker("tailrace-fence")
                asked = worker.submit(before_commit)
                worker.shutdown(wait=False)
                asked.result()
            except BaseException as error:
                failed.append(error)  # it makes an error of its own of this one
                raise

        schema = pa.schema([self._schema.field(name) for name in self._names])
        reader = pa.RecordBatchReader.from_batches(schema, all_rows())
        try:
            write_deltalake(self._opened, reader, mode="append", commit_properties=self._identified(epoch))
        except Exception:
            if failed:
                raise failed[0] from None
            raise

    def _merge(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        keys = self._options.key_columns
        given = map(without_preimages, rows) if self._changes else rows
        change = [CHANGE_TYPE] if self._changes else []
        source = last_of_keys(pa.Table.from_batches(given, self._given), keys).select([*self._names, *change])
        if not source.num_rows:
            return self._append(epoch, iter(()), before_commit)
        # Equal nulls cost the library its fast join, so only where there are any.
        equal = [f"t.`{key}` {'is not distinct from' if source[key].null_count else '='} s.`{key}`" for key in keys]
        before_commit()
        merge = self._opened.merge(source, " and ".join(equal), "s", "t", commit_properties=self._identified(epoch))
        kept = None
        if self._changes:
            merge, kept = merge.when_matched_delete(f"s.{CHANGE_TYPE} = '{DELETE}'"), f"s.{CHANGE_TYPE} <> '{DELETE}'"
        merge = merge.when_matched_update_all(kept, except_cols=change)
        merge.when_not_matched_insert_all(kept, except_cols=change).execute()


@contextmanager
def _errors(shown: str) -> Iterator[None]:
    """The library's errors by what a caller does about them."""
    try:
        yield
    except CommitFailedError as error:
        raise Unreachable(f"another commit came first: {one_line(error)}") from error
    except OSError as error:
        raise Unreachable(one_line(error)) from error
    except TableNotFoundError as error:
        raise AnalysisError(f"{shown} cannot be opened: {one_line(error)}") from error
    except DeltaError as error:
        raise TableError(
            f"{shown} does not take the rows: {error}. Nothing of the epoch was kept and nothing is lost: mend that, "
            f"and start the query again"
        ) from error
