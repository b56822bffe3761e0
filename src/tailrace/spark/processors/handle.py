"""What a ``StatefulProcessor`` is given on a state server: PySpark's handle and its states, over a batch of keys.

PySpark's own ask a server in the JVM for each value. These have the state of all keys of the batch in the process, and
look at the one key that is being called.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState

from tailrace.operators.stateful_processor.batch import KeyBatch
from tailrace.operators.stateful_processor.packed_state import PackedState
from tailrace.spark.processors.values import StateValues

Row = tuple[Any, ...]


class Cursor:
    """The key that is being called, by its number in the batch; -1: none."""

    key = -1


class _Cell:
    def __init__(self, name: str, state: PackedState, cursor: Cursor, now: int) -> None:
        self._name = name
        self._state = state
        self._cursor = cursor
        ttl = state.variable.ttl_ms
        self._expiry: Row = () if ttl is None else (now + ttl,)

    @property
    def _key(self) -> int:
        key = self._cursor.key
        if key < 0:
            raise RuntimeError(f"state {self._name!r} has no key here: read and write it where rows or timers come")
        return key

    def clear(self) -> None:
        self._state.write(self._key, [])


class ValueCell(_Cell, ValueState):
    def __init__(self, name: str, state: PackedState, cursor: Cursor, now: int, values: StateValues) -> None:
        super().__init__(name, state, cursor, now)
        self._values = values

    def exists(self) -> bool:
        return bool(self._state.read(self._key))

    def get(self) -> Row | None:
        found = self._state.read(self._key)
        return self._values.outward(found[0]) if found else None

    def update(self, newValue: Row) -> None:
        self._state.write(self._key, [self._values.inward(newValue) + self._expiry])


class ListCell(_Cell, ListState):
    def __init__(self, name: str, state: PackedState, cursor: Cursor, now: int, values: StateValues) -> None:
        super().__init__(name, state, cursor, now)
        self._values = values

    def exists(self) -> bool:
        return bool(self._state.read(self._key))

    def get(self) -> Iterator[Row]:
        return map(self._values.outward, tuple(self._state.read(self._key)))

    def put(self, newState: Iterable[Row]) -> None:
        self._state.write(self._key, self._rows(newState))

    def appendValue(self, newState: Row) -> None:
        self._state.append(self._key, [self._values.inward(newState) + self._expiry])

    def appendList(self, newState: Iterable[Row]) -> None:
        self._state.append(self._key, self._rows(newState))

    def _rows(self, given: Iterable[Row]) -> list[Row]:
        rows = [self._values.inward(each) + self._expiry for each in given]
        if not rows:
            raise ValueError(f"state {self._name!r} was given an empty list: call clear() to remove it")
        return rows


class MapCell(_Cell, MapState):
    def __init__(
        self, name: str, state: PackedState, cursor: Cursor, now: int, keys: StateValues, values: StateValues
    ) -> None:
        super().__init__(name, state, cursor, now)
        self._keys, self._values = keys, values

    @property
    def _map(self) -> Mapping[Row, Row]:
        return self._state.read_map(self._key)

    def exists(self) -> bool:
        return bool(self._map)

    def getValue(self, key: Row) -> Row | None:
        found = self._map.get(self._keys.inward(key))
        return None if found is None else self._values.outward(found)

    def containsKey(self, key: Row) -> bool:
        return self._keys.inward(key) in self._map

    def updateValue(self, key: Row, value: Row) -> None:
        kept = self._keys.inward(key), self._values.inward(value) + self._expiry
        self._state.changed_map(self._key)[kept[0]] = kept[1]

    def iterator(self) -> Iterator[tuple[Row, Row]]:
        return ((self._keys.outward(key), self._values.outward(value)) for key, value in tuple(self._map.items()))

    def keys(self) -> Iterator[Row]:
        return map(self._keys.outward, tuple(self._map))

    def values(self) -> Iterator[Row]:
        return map(self._values.outward, tuple(self._map.values()))

    def removeKey(self, key: Row) -> None:
        self._state.changed_map(self._key).pop(self._keys.inward(key), None)

    def clear(self) -> None:
        self._state.changed_map(self._key).clear()


class Handle(StatefulProcessorHandle):
    """``schemas``: of each state variable those of its values and, of a map, of its keys before."""

    def __init__(self, batch: KeyBatch, cursor: Cursor, schemas: Mapping[str, tuple[StateValues, ...]]) -> None:
        self._batch = batch
        self._cursor = cursor
        self._schemas = schemas

    def getValueState(self, stateName: str, schema: object, ttlDurationMs: int | None = None) -> ValueState:
        return ValueCell(stateName, *self._cell(stateName))

    def getListState(self, stateName: str, schema: object, ttlDurationMs: int | None = None) -> ListState:
        return ListCell(stateName, *self._cell(stateName))

    def getMapState(
        self, stateName: str, userKeySchema: object, valueSchema: object, ttlDurationMs: int | None = None
    ) -> MapState:
        return MapCell(stateName, *self._cell(stateName))

    def _cell(self, name: str) -> tuple[Any, ...]:
        if name not in self._schemas:
            raise RuntimeError(
                f"state {name!r} was not asked for when the query was planned: init must ask for the same states "
                f"wherever it is called, and only init may"
            )
        return (self._batch.variables[name], self._cursor, self._batch.now, *self._schemas[name])

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._batch.changed_timers(self._timed("register")).add(int(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._batch.changed_timers(self._timed("delete")).discard(int(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        return iter(sorted(self._batch.timers(self._timed("list"))))

    def deleteIfExists(self, stateName: str) -> None:
        """State that the query was not planned with is not kept."""

    def _timed(self, what: str) -> int:
        if not self._batch.has_timers:
            raise RuntimeError(f"cannot {what} a timer with timeMode 'None': use 'ProcessingTime' or 'EventTime'")
        if self._cursor.key < 0:
            raise RuntimeError(f"cannot {what} a timer without a key: do it where rows or timers come")
        return self._cursor.key
