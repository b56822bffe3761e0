"""Which state a ``StatefulProcessor`` asks for: its ``init`` is called on a copy, on the driver, as by Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import StructType

from tailrace.api.processors import StateKind, StateVariable
from tailrace.errors import AnalysisError
from tailrace.operators.user_code.code import loaded
from tailrace.spark.sources.schema import fields_of

ParseSchema = Callable[[object], StructType]


class DeclaredStates(StatefulProcessorHandle):
    """A handle that only notes what it is asked for."""

    def __init__(self, parse: ParseSchema, title: str) -> None:
        self._parse = parse
        self._title = title
        self.variables: list[StateVariable] = []
        self.schemas: dict[str, tuple[StructType, ...]] = {}

    def getValueState(self, stateName: str, schema: object, ttlDurationMs: int | None = None) -> ValueState:
        self._note(StateKind.VALUE, stateName, (schema,), ttlDurationMs)
        return ValueState(None, stateName)  # type: ignore[arg-type]

    def getListState(self, stateName: str, schema: object, ttlDurationMs: int | None = None) -> ListState:
        self._note(StateKind.LIST, stateName, (schema,), ttlDurationMs)
        return ListState(None, stateName)  # type: ignore[arg-type]

    def getMapState(
        self, stateName: str, userKeySchema: object, valueSchema: object, ttlDurationMs: int | None = None
    ) -> MapState:
        self._note(StateKind.MAP, stateName, (userKeySchema, valueSchema), ttlDurationMs)
        return MapState(None, stateName)  # type: ignore[arg-type]

    def _note(self, kind: StateKind, name: str, given: tuple[object, ...], ttl_ms: int | None) -> None:
        if name in self.schemas:
            raise AnalysisError(f"{self._title}: init asks for state {name!r} twice: give each a name of its own")
        schemas = tuple(self._parse(schema) for schema in given)
        *keys, value = (fields_of(schema) for schema in schemas)
        self.schemas[name] = schemas
        self.variables.append(StateVariable(name, kind, value, keys[0] if keys else (), ttl_ms))

    def registerTimer(self, expiryTimestampMs: int) -> None:
        raise AnalysisError(f"{self._title}: init has no key to register a timer for: do it in handleInputRows")

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        raise AnalysisError(f"{self._title}: init has no key to delete a timer of: do it in handleInputRows")

    def deleteIfExists(self, stateName: str) -> None:
        """Nothing is kept of it."""


def declared_states(code: str, parse: ParseSchema, title: str) -> DeclaredStates:
    """``code``: the processor, packed."""
    processor: Any = loaded(code, title, "the processor")
    if not isinstance(processor, StatefulProcessor):
        raise AnalysisError(
            f"{title} takes a StatefulProcessor, but got {processor!r} ({type(processor).__name__}): an object of a "
            f"class that extends pyspark.sql.streaming.StatefulProcessor"
        )
    states = DeclaredStates(parse, title)
    processor.init(states)
    processor.close()
    return states
