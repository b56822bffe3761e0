"""``spark.read.format("tailrace-state")``: an operator's state as a DataFrame, and ``tailrace-state-metadata``.

Spark finds them by the packages ``pyspark_tailrace_state`` and ``pyspark_tailrace_state_metadata``, which need not be
imported by anybody. The epoch is chosen when Spark plans a read, and all of its tasks read that one.

Filters that name every key column go to the keys' shards alone, where Spark offers filters to Python sources
(``spark.sql.python.filterPushdown.enabled``). Spark applies each filter itself as well, so that only reading less
depends on what is understood here.

Threads: Spark's; each reading by one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace.errors import CheckpointError

if TYPE_CHECKING:
    from tailrace.state_table.changes import StateChanges
    from tailrace.state_table.checkpoint import SavedState
    from tailrace.state_table.operator_state import OperatorState

PARTITION_BYTES = 64 << 20
"""About so much is read by a task, unless ``partitions`` says how many there are."""

_KEYS_MAX = 10_000
"""Filters that allow more keys than this are left to Spark."""

_EXACT = (int, str, bytes, date, Decimal)
"""Values that are equal in a filter and in state if and only if they are equal in Python."""

_log = logging.getLogger("tailrace")


class StateSource(DataSource):
    """Options: those of ``_Options``; any other is one of the object store."""

    @classmethod
    def name(cls) -> str:
        return "tailrace-state"

    def schema(self) -> StructType:
        chosen = _Options(self.options)
        return from_arrow_schema(_small(chosen.rows(chosen.state()).schema), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> StateReader:
        return StateReader(_Options(self.options))


class MetadataSource(DataSource):
    """Operators and epochs that are kept."""

    @classmethod
    def name(cls) -> str:
        return "tailrace-state-metadata"

    def schema(self) -> StructType:
        from tailrace.state_table.checkpoint import METADATA  # lazy: Spark imports this module to learn its names

        return from_arrow_schema(METADATA)

    def reader(self, schema: StructType) -> MetadataReader:
        return MetadataReader(_Options(self.options))


class _Options:
    """What a read is to give: ``path``, ``operator``, ``epoch``, ``since``, ``keys``, ``records``, ``skipDamaged`` and
    ``partitions``. Spark spells options in small letters.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._path = given.pop("path", None)
        self._operator = given.pop("operator", None)
        self.epoch = _number(given, "epoch")
        self._since = _number(given, "since")
        self.partitions = _number(given, "partitions")
        self.keys: Mapping[str, list[Any]] | None = _keys(given.pop("keys", None))
        self._records = given.pop("records", "false").lower() == "true"
        self.skip_damaged = given.pop("skipdamaged", "false").lower() == "true"
        self._store = given

    def state(self) -> SavedState:
        from tailrace.state_table.checkpoint import open_state  # lazy: see MetadataSource

        if self._path is None:
            raise CheckpointError("Say where the state is: .load(location).")
        return open_state(self._path, epoch=self.epoch, skip_damaged=self.skip_damaged, options=self._store)

    def rows(self, state: SavedState) -> OperatorState | StateChanges:
        name = self._operator
        if name is None:
            if len(state.operators) != 1:
                known = ", ".join(state.operators) or "none"
                raise CheckpointError(f"Say which operator to read with the option operator. There is: {known}.")
            (name,) = state.operators
        if self._since is not None:
            return state.changes(name, self._since, records=self._records)
        return state[name].as_records() if self._records else state[name]


def _number(given: dict[str, str], name: str) -> int | None:
    value = given.pop(name, None)
    if value is None:
        return None
    try:
        return int(value)
    except ValueError:
        raise CheckpointError(f"The option {name} is a whole number, not {value!r}.") from None


def _keys(text: str | None) -> Mapping[str, list[Any]] | None:
    """
    >>> _keys('{"auction": [3, 5]}')
    {'auction': [3, 5]}
    """
    if text is None:
        return None
    try:
        keys = json.loads(text)
    except ValueError:
        keys = None
    if not isinstance(keys, dict) or not all(isinstance(values, list) for values in keys.values()):
        raise CheckpointError(
            f'The option keys is JSON with a list for each key column, as {{"auction": [3, 5]}}; got {text!r}.'
        )
    return keys


class _Shards(InputPartition):
    """Shards from ``start`` to ``end``, which is not one of them."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class StateReader(DataSourceReader):
    def __init__(self, options: _Options) -> None:
        self._options = options
        self._keys = options.keys
        state = options.state()
        options.epoch = state.epoch if state.epochs else None
        rows = options.rows(state)
        self._names, self._shards, self._bytes = rows.keys, rows.shards, rows.bytes
        if self._keys is None and self._names:
            self.pushFilters = _OfferedFilters(self._push)  # type: ignore[method-assign]

    def _push(self, filters: list[Any]) -> None:
        """Take the keys that filters allow, where these name all key columns."""
        allowed: dict[str, list[Any]] = {}
        for each in filters:
            if type(each).__name__ not in ("EqualTo", "EqualNullSafe", "In") or len(each.attribute) != 1:
                continue
            (name,) = each.attribute
            values = list(each.value) if type(each).__name__ == "In" else [each.value]
            if name in self._names and all(type(value) in _EXACT for value in values):
                allowed[name] = [value for value in values if value in allowed.get(name, values)]
        counts = 1
        for values in allowed.values():
            counts *= len(values)
        if len(allowed) == len(self._names) and counts <= _KEYS_MAX:
            combined = list(product(*(allowed[name] for name in self._names)))
            self._keys = {name: [row[at] for row in combined] for at, name in enumerate(self._names)}

    def partitions(self) -> list[InputPartition]:
        wanted = self._options.partitions
        count = -(-self._bytes // PARTITION_BYTES) if wanted is None else wanted
        count = min(max(1, count), self._shards)
        edges = [self._shards * number // count for number in range(count + 1)]
        found: list[InputPartition] = [_Shards(start, end) for start, end in pairwise(edges)]
        if self._keys is None:
            return found
        shards = self._shards_of_keys()
        needed = [any(start <= shard < end for shard in shards) for start, end in pairwise(edges)]
        return [each for each, is_needed in zip(found, needed, strict=True) if is_needed] or found[:1]

    def _shards_of_keys(self) -> list[int]:
        from tailrace.state_table.keys import KeyFilter  # lazy: see MetadataSource

        rows = self._options.rows(self._options.state())
        try:
            return KeyFilter(rows.spec, self._keys or {}, rows.keys).shards
        except CheckpointError:
            if self._options.keys is not None:
                raise
            self._keys = None  # a filter that no key can pass, by its type: Spark applies it
            return list(range(self._shards))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Shards)
        state = self._options.state()
        rows = self._options.rows(state)
        schema = _small(rows.schema)
        for batch in rows.batches(self._keys, range(partition.start, partition.end)):
            yield batch.cast(schema)
        for damage in state.damage:
            _log.warning("left out shards %s, which need %s: %s", damage.shards, damage.object, damage.error)


def _small(schema: pa.Schema) -> pa.Schema:
    """With Spark's types: its offsets have 32 bits."""
    return pa.schema([field.with_type(_small_type(field.type)) for field in schema])


def _small_type(type_: pa.DataType) -> pa.DataType:
    """
    >>> _small_type(pa.list_(pa.struct({"a": pa.large_string()})))
    ListType(list<item: struct<a: string>>)
    """
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_small_type(field.type)) for field in type_.fields])
    if pa.types.is_map(type_):
        return pa.map_(_small_type(type_.key_type), _small_type(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_small_type(type_.value_type))
    return type_


class _OfferedFilters:
    """``pushFilters`` of a reader, for those who call it.

    Spark refuses every read of a reader that overrides the method where push-down is not switched on. It tells by the
    method's function; a reader cannot know the setting. So this looks like the method that is not overridden.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", print))

    def __init__(self, push: Callable[[list[Any]], None]) -> None:
        self._push = push

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        self._push(filters)
        return filters


class MetadataReader(DataSourceReader):
    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._options.state().metadata().to_batches()
