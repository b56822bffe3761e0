"""A table behind any database module (PEP 249): rows and the epoch's entry in one transaction.

Entry: a row of the table ``epochTable``: query, run, epoch.

Rows go, some hundred of them by one statement, into a temporary table of the connection. Then one short transaction
takes the entry, by an update that only the newest run can make and that holds its row, and takes the rows over from the
temporary table, by statements over all of them. So nothing that others wait for is held while rows still come.

The statements are standard SQL, beside ``create temporary table ... as``. Such a module knows rows as Python objects
only: this is the one sink, beside ``foreach``, where Python sees single values.

Columns are matched by their names. Types are the module's affair.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.api.table_options import DbapiOptions, WriteMode
from tailrace.errors import AnalysisError, TableError
from tailrace.sinks.contract import Owner, Unreachable, fenced, one_line
from tailrace.sinks.rows import (
    CHANGE_TYPE,
    DELETE,
    PREIMAGE,
    Form,
    check_key_columns,
    flat_schema,
    flattened,
    without_empty,
    without_preimages,
)

_STAGE, _ORDER, _CHANGE = '"tailrace_stage"', '"tailrace_row"', f'"{CHANGE_TYPE}"'
_PARAMETERS_MAX = 2_000
"""Of one statement: databases have limits, the lowest of them little more."""
_MARKS: Mapping[str, Callable[[int], str]] = {
    "qmark": lambda number: "?",
    "numeric": lambda number: f":{number + 1}",
    "named": lambda number: f":p{number}",
}


class DbapiTable:
    def __init__(self, options: DbapiOptions, schema: pa.Schema) -> None:
        self._options = options
        form = Form.of(flat_schema(schema), options)
        self._schema, self._mode, self._changes = form.schema, form.mode, form.changes
        self.shown = f"the table {options.table} behind {options.module}"
        self._module = _module(options.module)
        self._arguments = _arguments(options.connect)
        if options.module == "sqlite3":
            self._arguments.setdefault("check_same_thread", False)  # epochs come in different threads, one at a time
        check_key_columns(self.shown, self._schema, self._mode, options.key_columns)
        self._connection: Any = None
        self._owner = Owner("", -1)

    def open(self, owner: Owner) -> int:
        self._owner = owner
        with self._errors():
            self._connection = self._module.connect(**self._arguments)
            self._make_epoch_table()
            self._prepare()
            return self._take_over()

    def write(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        with self._errors():
            staged = self._stage(rows)
            before_commit()
            if not self._take_entry(epoch):
                return
            if staged:
                for statement in self._statements():
                    self._execute(statement)
            self._connection.commit()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(self._module.Error):
                connection.close()

    def _execute(self, statement: str, values: Sequence[Any] = (), read: bool = False) -> Any:
        """``?`` stands for each value. Gives the first row, or how many rows were changed."""
        cursor = self._connection.cursor()
        try:
            if values:
                cursor.execute(*self._bound(statement, values))
            else:
                cursor.execute(statement)
            return cursor.fetchone() if read else cursor.rowcount
        finally:
            cursor.close()

    def _bound(self, statement: str, values: Sequence[Any]) -> tuple[str, Any]:
        mark = _MARKS.get(self._module.paramstyle)
        if mark is None:  # "format" and "pyformat"
            return statement.replace("%", "%%").replace("?", "%s"), tuple(values)
        first, *rest = statement.split("?")
        text = first + "".join(mark(number) + part for number, part in enumerate(rest))
        named = self._module.paramstyle == "named"
        return text, {f"p{number}": value for number, value in enumerate(values)} if named else tuple(values)

    # The entry -------------------------------------------------------------------------------------------------------

    def _make_epoch_table(self) -> None:
        name = _quoted(self._options.epoch_table)
        try:
            self._execute(f"select run from {name} where 1 = 0", read=True)
        except self._module.Error:
            self._connection.rollback()
            self._execute(
                f"create table if not exists {name} (query varchar(255) not null primary key, run bigint not null, "
                f"epoch bigint not null)"
            )
        self._connection.commit()

    def _take_over(self) -> int:
        name, owner = _quoted(self._options.epoch_table), self._owner
        taken = f"update {name} set run = ? where query = ? and run <= ?"
        if not self._execute(taken, [owner.run, owner.query, owner.run]):
            if (found := self._entry()) is not None:
                self._connection.rollback()
                raise fenced(self.shown, found[0])
            self._execute(f"insert into {name} (query, run, epoch) values (?, ?, -1)", [owner.query, owner.run])
        found = self._entry()
        assert found is not None
        self._connection.commit()
        return found[1]

    def _entry(self) -> tuple[int, int] | None:
        name = _quoted(self._options.epoch_table)
        found = self._execute(f"select run, epoch from {name} where query = ?", [self._owner.query], read=True)
        return None if found is None else (int(found[0]), int(found[1]))

    def _take_entry(self, epoch: int) -> bool:
        """Whether the epoch is still to be written; then its entry is held until the end of the transaction."""
        name, owner = _quoted(self._options.epoch_table), self._owner
        taken = f"update {name} set epoch = ? where query = ? and run = ? and epoch < ?"
        if self._execute(taken, [epoch, owner.query, owner.run, epoch]):
            return True
        found = self._entry()
        self._connection.rollback()
        if found is None:
            raise TableError(
                f"{self.shown}: the entry of this query ({owner.query}) is gone from {self._options.epoch_table}, so "
                f"it is not known which epochs the table has: put it back, or start with a new checkpointLocation"
            )
        if found[0] != owner.run:
            raise fenced(self.shown, found[0])
        return False

    # The rows --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Check that the table has the columns, and make the temporary table."""
        target, names = _quoted(self._options.table), self._schema.names
        # By the table's name in the statement: alone, SQLite takes the name of a column that is not there for a text.
        columns = ", ".join(f"t.{_quoted_name(name)}" for name in names)
        try:
            self._execute(f"select {columns} from {target} t where 1 = 0", read=True)
        except self._module.Error as error:
            self._connection.rollback()
            self._execute("select 1", read=True)  # else it is the connection
            raise AnalysisError(f"{self.shown} has not the columns {', '.join(names)}: {one_line(error)}") from error
        values = [name for name in names if name not in self._options.key_columns]
        if self._mode is WriteMode.UPDATE and not values:
            raise AnalysisError(f"{self.shown}: every column is in keyColumns, so there is nothing to update")
        change = f", '{PREIMAGE}' as {_CHANGE}" if self._changes else ""  # the longest of them
        self._execute(
            f"create temporary table {_STAGE} as select {columns}, 0 as {_ORDER}{change} from {target} t where 1 = 0"
        )
        self._connection.commit()
        if self._mode is not WriteMode.APPEND:
            keys = ", ".join(map(_quoted_name, self._options.key_columns))
            try:
                self._execute(f'create index "tailrace_stage_key" on {_STAGE} ({keys})')
                self._connection.commit()
            except self._module.Error:  # some take no such index: then they are slower
                self._connection.rollback()

    def _stage(self, rows: Iterator[pa.RecordBatch]) -> int:
        """Bring the rows to the temporary table. Gives how many there are."""
        columns = [*self._schema.names, *([CHANGE_TYPE] if self._changes else [])]
        names = [*map(_quoted_name, columns), _ORDER]
        each = f"({', '.join('?' * len(names))})"
        into = f"insert into {_STAGE} ({', '.join(names)}) values "
        piece = max(1, _PARAMETERS_MAX // len(names))
        self._execute(f"delete from {_STAGE}")
        staged = 0
        for batch in without_empty(rows):
            flat = flattened(without_preimages(batch) if self._changes else batch).select(columns)
            self._check_keys(flat)
            for at in range(0, len(flat), piece):
                part = self._values(flat.slice(at, piece))
                numbered = zip(*part, range(staged + at, staged + at + len(part[0])), strict=True)
                self._execute(into + ", ".join([each] * len(part[0])), [value for row in numbered for value in row])
            staged += len(flat)
        return staged

    def _values(self, batch: pa.RecordBatch) -> list[list[Any]]:
        """By column, as Python's values."""
        if self._options.module == "sqlite3":  # it takes neither times nor decimals
            batch = pa.RecordBatch.from_arrays([_as_text(column) for column in batch.columns], names=batch.schema.names)
        return [column.to_pylist() for column in batch.columns]

    def _check_keys(self, batch: pa.RecordBatch) -> None:
        for key in self._options.key_columns if self._mode is not WriteMode.APPEND else ():
            if batch.column(key).null_count:
                raise TableError(
                    f"{self.shown}: a row has null in its key column {key!r}, and to a database nulls are not equal, "
                    f"so that every epoch would add a row: give such rows a value"
                )

    def _statements(self) -> Iterator[str]:
        """What takes the rows over."""
        target, keys = _quoted(self._options.table), self._options.key_columns
        columns = ", ".join(map(_quoted_name, self._schema.names))
        if self._mode is WriteMode.APPEND:
            yield f"insert into {target} ({columns}) select {columns} from {_STAGE} order by {_ORDER}"
            return
        own = _quoted_name(self._options.table.rpartition(".")[2])

        def same(one: str, other: str) -> str:
            return " and ".join(f"{one}.{_quoted_name(key)} = {other}.{_quoted_name(key)}" for key in keys)

        yield (  # of several rows with one key the last one counts
            f"delete from {_STAGE} where exists (select 1 from {_STAGE} later where {same('later', _STAGE)} "
            f"and later.{_ORDER} > {_STAGE}.{_ORDER})"
        )
        found = f"from {_STAGE} s where {same('s', own)}"
        if self._changes:
            gone = f"from {_STAGE} s where {same('s', own)} and s.{_CHANGE} = '{DELETE}'"
            yield f"delete from {target} where exists (select 1 {gone})"
            yield f"delete from {_STAGE} where {_CHANGE} = '{DELETE}'"
        changed = [name for name in map(_quoted_name, self._schema.names) if name not in map(_quoted_name, keys)]
        if changed:
            changes = ", ".join(f"{name} = (select s.{name} {found})" for name in changed)
            yield f"update {target} set {changes} where exists (select 1 {found})"
        if self._mode is WriteMode.UPSERT:
            yield (
                f"insert into {target} ({columns}) select {columns} from {_STAGE} s where not exists "
                f"(select 1 from {target} where {same('s', own)}) order by {_ORDER}"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The module's errors by what a caller does about them: PEP 249 has names for them."""
        module = self._module
        try:
            yield
        except (module.OperationalError, module.InterfaceError) as error:
            raise Unreachable(one_line(error)) from error
        except module.Error as error:
            raise TableError(
                f"{self.shown} does not take the rows: {one_line(error)}. Nothing of the epoch was kept and nothing is "
                f"lost: mend that, and start the query again"
            ) from error


def _module(name: str) -> ModuleType:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise AnalysisError(f"format 'dbapi': the module {name!r} cannot be imported: {error}") from error
    missing = [each for each in ("connect", "paramstyle", "Error", "OperationalError") if not hasattr(module, each)]
    if missing:
        raise AnalysisError(f"format 'dbapi': {name!r} is no database module (PEP 249): it has no {missing[0]}")
    return module


def _arguments(text: str) -> dict[str, Any]:
    """Errors do not show the text: it may have a password."""
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise AnalysisError(
            "format 'dbapi': connect must be a JSON object with the arguments of the module's connect(), such as "
            '{"host": "db.example", "port": 5432}'
        )
    return given


def _quoted(name: str) -> str:
    return ".".join(map(_quoted_name, name.split(".")))


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return pc.strftime(column, "%Y-%m-%d %H:%M:%S+00:00")
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    return column
