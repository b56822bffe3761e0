"""A user's function of the rows of a window: called with an Arrow table, held to the schema it was declared with.

It comes with the server's configuration, from the process that started the server, and from nobody else. Rows are
ordered by event time and then by every column, so that the function sees the same table when an epoch is replayed.
"""

from __future__ import annotations

import base64
import pickle
import traceback

import pyarrow as pa

from tailrace.errors import UserFunctionError
from tailrace.operators.groups import Groups, in_order
from tailrace.operators.output import output_schema
from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.state.columns import arrow_type

_LINES_SHOWN = 6


class UserFunction:
    def __init__(self, spec: AggregateSpec) -> None:
        assert spec.function is not None
        self._spec = spec
        try:
            self._function = pickle.loads(base64.b64decode(spec.function))
        except Exception as error:
            raise UserFunctionError(
                f"operator {spec.name}: the function cannot be loaded in the state server ({error!r}): what it imports "
                "must be importable by Spark's Python workers too; install it there, or ship it with sc.addPyFile"
            ) from error
        self._name = getattr(self._function, "__name__", "function")
        schema = output_schema(spec)
        self._schema = pa.schema([schema.field(out.name) for out in spec.outputs])
        chained = spec.window is not None and spec.window.lasts is not None
        self._columns = [
            field
            for field in (*spec.keys, *spec.rows)
            if not (chained and spec.time_column is not None and field.name == spec.time_column.name)
        ]

    def call(self, groups: Groups, epoch: int) -> pa.Table:
        """The function's columns for the rows of these groups, which are all of one window."""
        spec = self._spec
        columns = groups.columns
        if spec.time_column is not None:
            columns = in_order(columns, [spec.time_column.name, *(n for n in columns if n != spec.time_column.name)])
        table = pa.table({f.name: columns[f.name].cast(arrow_type(f.type)) for f in self._columns})
        where = f"operator {spec.name}, epoch {epoch}: function {self._name}"
        try:
            made = self._function(table)
        except (Exception, SystemExit) as error:
            said = "".join(traceback.format_exception(error)[-_LINES_SHOWN:])
            raise UserFunctionError(
                f"{where} raised {type(error).__name__}: {error}. Nothing of the epoch was kept: mend the function and "
                f"start the query again. Where it failed:\n{said}"
            ) from error
        return self._checked(made, where)

    def _checked(self, made: object, where: str) -> pa.Table:
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        wanted = ", ".join(f"{field.name} {field.type}" for field in self._schema)
        if not isinstance(made, pa.Table):
            raise UserFunctionError(f"{where} gave a {type(made).__name__}, and must give a pyarrow.Table of {wanted}")
        given = ", ".join(f"{field.name} {field.type}" for field in made.schema)
        try:
            return made.select(self._schema.names).cast(self._schema)
        except (KeyError, pa.ArrowException) as error:
            raise UserFunctionError(
                f"{where} gave a table of {given}, and was declared to give {wanted}: {error}. Nothing of the epoch "
                "was kept: mend the function or its schema and start the query again."
            ) from error
