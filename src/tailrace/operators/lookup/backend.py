"""What the lookup join needs of a table's backend, and what is common to all of them: pieces, patience, errors.

Invariants
- ``ask`` gives the table's rows for distinct keys, in their order, with a mask of those that it has. It is a pure
  function of the table: asked twice, it gives the same twice, unless the table was changed.
- A connection that is lost is made anew, for as long as the description says; then ``TableError`` says which table,
  what happened, and that nothing is lost. Nothing that a message holds is a secret.

Threads: any; a backend has connections of its own for as many as ask at once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.env.files.shaped_reads import read_device
from tailrace.env.retry import keep_trying
from tailrace.errors import QueryStopped, TableError
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType

NOTHING_LOST = "Nothing of the epoch was kept and nothing is lost: mend that, and start the query again."


class ConnectionLost(Exception):
    """May pass: the connection broke, or the server is not ready. The text is for the user and has no secret."""


@dataclass(frozen=True)
class Answer:
    """``there[i]``: whether the table has key ``i``; ``values``: a column for each wanted one, null where not."""

    there: np.ndarray
    values: list[pa.Array]


class Backend(Protocol):
    @property
    def piece(self) -> int:
        """How many keys are asked for at once."""

    @property
    def mapped(self) -> bool:
        """Whether asking means to look at mapped files, which anybody can do at any time."""

    def ask(self, keys: list[pa.Array]) -> Answer:
        """``keys``: a column for each key column, none of them null. Raises ``ConnectionLost`` where that may pass."""

    def close(self) -> None: ...


class Asker:
    """Asks a backend in pieces."""

    def __init__(self, spec: LookupSpec, backend: Backend) -> None:
        self._spec, self._backend, self._device = spec, backend, read_device()
        self._retry_s = spec.table.retry / 1e6
        self._given_up = threading.Event()

    @property
    def piece(self) -> int:
        return self._backend.piece

    @property
    def mapped(self) -> bool:
        return self._backend.mapped

    def ask(self, keys: list[pa.Array], *, patient: bool = True) -> Answer:
        """``patient``: wait for a lost connection for as long as the description says."""
        count, piece = len(keys[0]), self._backend.piece
        with self._device.reading(count):
            parts = [self._asked([key.slice(at, piece) for key in keys], patient) for at in range(0, count, piece)]
        if len(parts) == 1:
            return parts[0]
        types = [arrow_type(value.type, large=True) for value in self._spec.values]
        return Answer(
            np.concatenate([part.there for part in parts]) if parts else np.zeros(0, bool),
            [
                pa.chunked_array([part.values[i] for part in parts], type_).combine_chunks()
                for i, type_ in enumerate(types)
            ],
        )

    def _asked(self, keys: list[pa.Array], patient: bool) -> Answer:
        def may_pass(error: Exception) -> bool:
            return patient and isinstance(error, ConnectionLost) and not self._given_up.is_set()

        return keep_trying(lambda: self._backend.ask(keys), may_pass, self._said, self._retry_s)

    def _said(self, error: Exception, tried: str) -> Exception:
        if isinstance(error, TableError):
            return error
        table, name = self._spec.table.shown, self._spec.name
        if self._given_up.is_set():
            return QueryStopped(f"the query was stopped while operator {name} waited for {table}")
        if isinstance(error, ConnectionLost):
            waited = f" {tried}, as long as onConnectionLoss and retry allow." if self._retry_s else ""
            return TableError(f"operator {name}: {table} cannot be reached: {error}.{waited} {NOTHING_LOST}")
        return TableError(f"operator {name}: {table} cannot be read: {type(error).__name__}: {error}. {NOTHING_LOST}")

    def give_up(self) -> None:
        """Have patience with nothing any more."""
        self._given_up.set()

    def close(self) -> None:
        self.give_up()
        self._backend.close()


def converted(array: pa.Array, type_: DataType, column: str, table: str) -> pa.Array:
    """A column as the schema wants it, strings with 64-bit offsets."""
    wanted = arrow_type(type_, large=True)
    if array.type == wanted:
        return array
    try:
        if pa.types.is_large_binary(array.type):
            array = array.cast(pa.string())  # the text of what is wanted
        if type_.is_time and pa.types.is_string(array.type):
            return _times(array, wanted)
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        said = str(error).splitlines()[0]
        raise TableError(f"{table}: column {column!r} is not a {type_} in every row: {said}. {NOTHING_LOST}") from None


def _times(texts: pa.Array, wanted: pa.TimestampType) -> pa.Array:
    """Texts with an offset or a Z are moments; without one they are taken for UTC."""
    if wanted.tz is None:
        return texts.cast(wanted)
    zoned = pc.match_substring_regex(texts, r"(Z|[+-]\d\d:?\d\d)$")
    plain = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
    return plain.cast(wanted)
