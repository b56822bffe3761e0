"""A table in PostgreSQL: rows and the epoch's entry in one transaction, by statements over whole sets of rows.

Entry: a row of the table ``epochTable``: query, run, epoch. Every transaction locks it first, so a query's transactions
follow one another whoever makes them, and compares its run, so that a replaced run commits nothing.

Rows go by COPY, as text that Arrow makes, into a temporary table with the columns of the real one; then one statement
takes the last row of each key over. A takeover that finds the entry locked ends the connections of older runs: a
process that stands still in the middle of a transaction would hold it for as long as it stands.

Columns are matched by their names. What does not fit is refused when the table is opened: PostgreSQL itself plans the
statement then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from psycopg import sql

from tailrace.api.table_options import PostgresOptions, WriteMode
from tailrace.errors import AnalysisError, TableError
from tailrace.sinks.contract import Owner, Unreachable, fenced
from tailrace.sinks.rows import (
    CHANGE_TYPE,
    DELETE,
    Form,
    check_key_columns,
    flat_schema,
    flattened,
    without_empty,
    without_preimages,
)

_CONNECT_TIMEOUT_S = 10
_LOCK_WAIT = "3s"
_CREATED_MEANWHILE = (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable)
_WRONG_ADDRESS = ("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")
_STAGE, _ORDER, _CHANGE = map(sql.Identifier, ("tailrace_stage", "tailrace_row", CHANGE_TYPE))
_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), "S2")
_TEXT = pyarrow.csv.WriteOptions(include_header=False)

_COLUMNS = """
    select a.attname, t.typcategory::text, t.typname, t.typlen,
           a.attnotnull and not a.atthasdef and a.attidentity = '' as needed
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
"""
_NULLS_EQUAL = """
    select coalesce(bool_or(to_jsonb(i) ->> 'indnullsnotdistinct' = 'true'), false)
    from pg_index i where i.indrelid = to_regclass(%s) and i.indisunique
"""
_END_OTHERS = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s and pid <> %s"


class PostgresTable:
    def __init__(self, options: PostgresOptions, schema: pa.Schema) -> None:
        self._options = options
        form = Form.of(flat_schema(schema), options)
        self._schema, self._mode, self._changes = form.schema, form.mode, form.changes
        self.shown = f"PostgreSQL's table {options.table}"
        self._target, self._epochs = _identifier(options.table), _identifier(options.epoch_table)
        self._target_text = ".".join(map(_quoted, options.table.split(".")))
        self._connection: psycopg.Connection | None = None
        self._nulls_equal = False
        self._owner = Owner("", -1)

    def open(self, owner: Owner) -> int:
        self._owner = owner
        # The name by which a later run finds this connection, and ends it where it must.
        name = f"tailrace {owner.query}"
        with _errors(self.shown):
            self._connection = psycopg.connect(
                self._options.url, autocommit=True, application_name=name, connect_timeout=_CONNECT_TIMEOUT_S
            )
            self._make_epoch_table()
            epoch = self._take_over(name)
            self._prepare()
        return epoch

    def write(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        with _errors(self.shown), self._opened.transaction(), self._opened.cursor() as cursor:
            if self._locked_epoch(cursor) >= epoch:
                return
            self._copy(cursor, rows)
            if self._changes:
                cursor.execute(self._deletion())
            if self._mode is not WriteMode.APPEND:
                cursor.execute(self._statement())
            cursor.execute(
                sql.SQL("update {} set epoch = %s, at = now() where query = %s").format(self._epochs),
                [epoch, self._owner.query],
            )
            before_commit()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    @property
    def _opened(self) -> psycopg.Connection:
        assert self._connection is not None, "a table is opened before it is written to"
        return self._connection

    # The entry -------------------------------------------------------------------------------------------------------

    def _make_epoch_table(self) -> None:
        shown = self._epochs.as_string(self._opened)
        # Not with "if not exists" alone: that needs the right to make tables, where there is nothing to make.
        (found,) = self._opened.execute("select to_regclass(%s) is not null", [shown]).fetchone() or (False,)
        if not found:
            statement = sql.SQL(
                "create table if not exists {} (query text primary key, run bigint not null, epoch bigint not null, "
                "at timestamptz not null default now())"
            )
            with suppress(*_CREATED_MEANWHILE):
                self._opened.execute(statement.format(self._epochs))

    def _take_over(self, name: str) -> int:
        statement = sql.SQL(
            "insert into {0} as e (query, run, epoch) values (%s, %s, -1) on conflict (query) "
            "do update set run = excluded.run where e.run <= excluded.run returning epoch"
        ).format(self._epochs)
        while True:
            try:
                with self._opened.transaction():
                    self._opened.execute(f"set local lock_timeout = '{_LOCK_WAIT}'")
                    found = self._opened.execute(statement, [self._owner.query, self._owner.run]).fetchone()
                break
            except psycopg.errors.LockNotAvailable:
                self._opened.execute(_END_OTHERS, [name, self._opened.info.backend_pid])
        if found is None:
            raise fenced(self.shown, self._entry()[0])
        return int(found[0])

    def _entry(self, *, lock: bool = False) -> tuple[int, int]:
        text = "select run, epoch from {} where query = %s" + (" for update" if lock else "")
        found = self._opened.execute(sql.SQL(text).format(self._epochs), [self._owner.query]).fetchone()
        if found is None:
            raise TableError(
                f"{self.shown}: the entry of this query ({self._owner.query}) is gone from "
                f"{self._options.epoch_table}, so it is not known which epochs the table has: put it back, or start "
                f"with a new checkpointLocation"
            )
        return int(found[0]), int(found[1])

    def _locked_epoch(self, cursor: psycopg.Cursor) -> int:
        run, epoch = self._entry(lock=True)
        if run != self._owner.run:
            raise fenced(self.shown, run)
        return epoch

    # The rows --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Check that the rows fit, and make the temporary table."""
        self._check_columns()
        if self._mode is WriteMode.APPEND:
            return
        for statement in (
            "drop table if exists {stage}",
            "create temp table {stage} on commit delete rows as select {columns} from {target} with no data",
            "alter table {stage} add column {order} bigint generated always as identity",
            "alter table {stage} add column {change} text",
        ):
            self._opened.execute(
                sql.SQL(statement).format(
                    stage=_STAGE,
                    columns=_list(self._schema.names),
                    target=self._target,
                    order=_ORDER,
                    change=_CHANGE,
                )
            )
        (self._nulls_equal,) = self._opened.execute(_NULLS_EQUAL, [self._target_text]).fetchone() or (False,)
        try:
            self._opened.execute(sql.SQL("explain {}").format(self._statement()))
        except psycopg.errors.InvalidColumnReference as error:
            keys = ", ".join(self._options.key_columns)
            raise AnalysisError(
                f"{self.shown} has no unique index on ({keys}), which writeMode 'upsert' needs: "
                f"create unique index on {self._target_text} ({keys})"
            ) from error

    def _check_columns(self) -> None:
        options, schema = self._options, self._schema
        found = self._opened.execute(_COLUMNS, [self._target_text]).fetchall()
        if not found:
            columns = ", ".join(f"{_quoted(field.name)} {_sql_type(field.type) or 'text'}" for field in schema)
            raise AnalysisError(
                f"{self.shown} does not exist, or has no columns. For these rows: "
                f"create table {self._target_text} ({columns})"
            )
        there = {name: (category, type_, size) for name, category, type_, size, _ in found}
        for field in schema:
            if field.name not in there:
                names = ", ".join(there)
                raise AnalysisError(f"{self.shown} has no column {field.name!r}; it has: {names}")
            category, type_, size = there[field.name]
            if not _fits(field.type, category, type_, size):
                raise AnalysisError(
                    f"{self.shown}: its column {field.name!r} is a {type_}, and the rows have {field.type} there: "
                    f"cast one of them" + (f" (alter table ... type {name})" if (name := _sql_type(field.type)) else "")
                )
        needed = [name for name, *_, needed in found if needed and name not in schema.names]
        if self._mode is not WriteMode.UPDATE and needed:
            raise AnalysisError(f"{self.shown} needs a value of {needed[0]!r}, which is no column of the rows")
        check_key_columns(self.shown, schema, self._mode, options.key_columns)
        if self._mode is WriteMode.UPDATE and not self._values:
            raise AnalysisError(f"{self.shown}: every column is in keyColumns, so there is nothing to update")

    @property
    def _values(self) -> list[str]:
        return [name for name in self._schema.names if name not in self._options.key_columns]

    def _copy(self, cursor: psycopg.Cursor, rows: Iterator[pa.RecordBatch]) -> None:
        into = self._target if self._mode is WriteMode.APPEND else _STAGE
        names = [*self._schema.names, *([CHANGE_TYPE] if self._changes else [])]
        statement = sql.SQL("copy {} ({}) from stdin (format csv)").format(into, _list(names))
        with cursor.copy(statement) as copy:
            for batch in without_empty(rows):
                flat = flattened(without_preimages(batch) if self._changes else batch)
                self._check_keys(flat)
                copy.write(_text(flat.select(names)))

    def _check_keys(self, batch: pa.RecordBatch) -> None:
        """To a unique index nulls differ from each other, so that every epoch would add a row."""
        if self._mode is WriteMode.APPEND or (self._mode is WriteMode.UPSERT and self._nulls_equal):
            return
        for key in self._options.key_columns:
            if batch.column(key).null_count:
                raise TableError(
                    f"{self.shown}: a row has null in its key column {key!r}, and no unique index of the table takes "
                    f"nulls for equal. Give such rows a value, or make the index anew (PostgreSQL 15): create unique "
                    f"index on {self._target_text} ({', '.join(self._options.key_columns)}) nulls not distinct"
                )

    def _last(self) -> sql.Composed:
        """Of the temporary table the last row of each key.

        Ordered by key, so that two queries that write to one table lock its rows in the same order.
        """
        return sql.SQL(
            "(select distinct on ({keys}) {names}, {change} from {stage} order by {keys}, {order} desc) as s"
        ).format(
            keys=_list(self._options.key_columns),
            names=_list(self._schema.names),
            change=_CHANGE,
            stage=_STAGE,
            order=_ORDER,
        )

    def _equal(self) -> sql.Composed:
        """Whether a row ``t`` of the table has the key of a row ``s``."""
        nulls = self._nulls_equal and self._mode is WriteMode.UPSERT
        text = "t.{0} is not distinct from s.{0}" if nulls else "t.{0} = s.{0}"
        return sql.SQL(" and ").join(sql.SQL(text).format(sql.Identifier(key)) for key in self._options.key_columns)

    def _deletion(self) -> sql.Composed:
        return sql.SQL("delete from {} as t using {} where {} and s.{} = {}").format(
            self._target, self._last(), self._equal(), _CHANGE, sql.Literal(DELETE)
        )

    def _statement(self) -> sql.Composed:
        """Takes the last row of each key over from the temporary table."""
        names, keys, values = self._schema.names, self._options.key_columns, self._values
        kept = sql.SQL("s.{} is distinct from {}").format(_CHANGE, sql.Literal(DELETE))
        if self._mode is WriteMode.UPDATE:
            changes = [sql.SQL("{0} = s.{0}").format(sql.Identifier(name)) for name in values]
            return sql.SQL("update {} as t set {} from {} where {} and {}").format(
                self._target, sql.SQL(", ").join(changes), self._last(), self._equal(), kept
            )
        changes = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in values]
        action = sql.SQL("update set {}").format(sql.SQL(", ").join(changes)) if changes else sql.SQL("nothing")
        return sql.SQL("insert into {} ({names}) select {names} from {} where {} on conflict ({}) do {}").format(
            self._target, self._last(), kept, _list(keys), action, names=_list(names)
        )


def _identifier(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split("."))


def _list(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(batch: pa.RecordBatch) -> bytes:
    columns = [_hex(column) if pa.types.is_binary(column.type) else column for column in batch.columns]
    out = BytesIO()
    pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), out, _TEXT)
    return out.getvalue()


def _hex(column: pa.Array) -> pa.Array:
    """Bytes as PostgreSQL's text has them."""
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    digits = _DIGITS[np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]].tobytes()
    starts = pa.py_buffer((2 * (offsets - offsets[0])).astype(np.int32))
    hexed = pa.StringArray.from_buffers(len(column), starts, pa.py_buffer(digits))
    return pc.if_else(pc.is_valid(column), pc.binary_join_element_wise("\\x", hexed, ""), pa.scalar(None, pa.string()))


_SQL_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
}


def _sql_type(type_: pa.DataType) -> str | None:
    """The type of PostgreSQL that has the same values."""
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz is None else "timestamptz"
    return _SQL_TYPES.get(type_)


def _fits(type_: pa.DataType, category: str, name: str, size: int) -> bool:
    """Whether PostgreSQL reads all values of the type as its own, by ``pg_type``'s category, name and size."""
    if pa.types.is_string(type_):
        return category in "SEI" or name in ("uuid", "json", "jsonb", "xml")
    if pa.types.is_boolean(type_):
        return category == "B"
    if pa.types.is_integer(type_):
        return name == "numeric" or (name.startswith("int") and category == "N" and 8 * size >= type_.bit_width)
    if pa.types.is_floating(type_):
        return name == "float8" or (name == "float4" and type_.bit_width == 32)
    if pa.types.is_decimal(type_):
        return name == "numeric"
    if pa.types.is_timestamp(type_):
        return name == ("timestamp" if type_.tz is None else "timestamptz")
    return (pa.types.is_date(type_) and name == "date") or (pa.types.is_binary(type_) and name == "bytea")


@contextmanager
def _errors(shown: str) -> Iterator[None]:
    """The driver's errors by what a caller does about them. Their texts name hosts and users, and no password."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        said = str(error).strip()
        if any(words in said for words in _WRONG_ADDRESS):
            raise AnalysisError(f"{shown}: {said}") from error
        raise Unreachable(said.split("\n", 1)[0]) from error
    except psycopg.Error as error:
        raise TableError(
            f"{shown} does not take the rows: {str(error).strip()}. Nothing of the epoch was kept and nothing is lost: "
            f"mend that, and start the query again"
        ) from error
