"""How the end of a query is seen: by its last result, without working out all of them while the system is at work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import psycopg
import pyarrow as pa

from tailrace.lab.espbench.broker import Broker
from tailrace.lab.espbench.names import Query
from tailrace.lab.espbench.validator.answers import WINDOW_RECORDS, answers

_SET = """SELECT count("POL_START_TS") + count("POL_END_TS") FROM production_order_line"""


class End(Protocol):
    """``seen``: something that changes with each further result."""

    def seen(self) -> int: ...

    def reached(self) -> bool: ...


def end_of(query: Query, inputs: Mapping[int, pa.Table], broker: Broker, output: str, database: str) -> End:
    stream = inputs[query.inputs[0]]
    if query.to_database:
        return _AllSet(database, stream)
    if query.key == "q2":
        return _LastWindow(broker, output, stream.num_rows // WINDOW_RECORDS)
    if query.key == "q4":
        return _Quiet(broker, output)  # whose last result it is, downtimes decide
    right = answers(query, inputs, None)
    return _LastResult(broker, output, right.texts[-1] if right.texts else None)


class _Quiet:
    def __init__(self, broker: Broker, output: str) -> None:
        self._broker, self._output = broker, output

    def seen(self) -> int:
        return self._broker.size(self._output)

    def reached(self) -> bool:
        return False


class _LastResult(_Quiet):
    def __init__(self, broker: Broker, output: str, text: str | None) -> None:
        super().__init__(broker, output)
        self._text = text

    def reached(self) -> bool:
        last = self._broker.last(self._output)
        return self._text is None or (last is not None and last.decode().rpartition(";")[2] == self._text)


class _LastWindow(_Quiet):
    """The last whole window has nearly always a result, and they come all at once."""

    def __init__(self, broker: Broker, output: str, windows: int) -> None:
        super().__init__(broker, output)
        self._windows = windows

    def reached(self) -> bool:
        last = self._broker.last(self._output)
        return last is not None and int(last.partition(b";")[0]) // WINDOW_RECORDS >= self._windows - 1


class _AllSet:
    def __init__(self, database: str, stream: pa.Table) -> None:
        self._database = database
        self._wanted = len({value.split(b";", 2)[2] for value in stream["value"].to_pylist()})

    def seen(self) -> int:
        with psycopg.connect(self._database) as connection:
            ((count,),) = connection.execute(_SET).fetchall()
        return int(count)

    def reached(self) -> bool:
        return self.seen() >= self._wanted
