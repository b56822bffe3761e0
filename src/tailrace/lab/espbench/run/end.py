"""How the end of a query is seen: by its last result, without working out all of them while the system is at work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import psycopg
import pyarrow as pa

from tailrace.lab.espbench.names import Query
from tailrace.lab.espbench.run.reader import ResultReader
from tailrace.lab.espbench.validator.answers import LOW_MF03, WINDOW_RECORDS, answers, machine_power
from tailrace.lab.espbench.validator.compare import same_text
from tailrace.lab.espbench.validator.database import downtimes
from tailrace.lab.espbench.validator.downtimes import Downtimes

_SET = """SELECT count("POL_START_TS") + count("POL_END_TS") FROM production_order_line"""


class End(Protocol):
    """``seen``: something that changes with each further result."""

    def seen(self) -> int: ...

    def reached(self) -> bool: ...


def end_of(
    query: Query, inputs: Mapping[int, pa.Table], results: ResultReader, database: str, low_mf03: int = LOW_MF03
) -> End:
    stream = inputs[query.inputs[0]]
    if query.to_database:
        return _AllSet(database, stream)
    if query.base == "q2":
        return _LastWindow(results, stream.num_rows // WINDOW_RECORDS)
    if query.base == "q4" and query.settings["changes_s"]:
        return _Quiet(results)  # whose last result it is, nobody knows
    if query.base == "q4":
        known = {place: [downtime] for place, downtime in downtimes(database).items()}
        right = machine_power(inputs, Downtimes(known), {}, low_mf03).answers
    else:
        right = answers(query, inputs)
    return _LastResult(results, right.texts[-1] if right.texts else None)


class _Quiet:
    def __init__(self, results: ResultReader) -> None:
        self._results = results

    def seen(self) -> int:
        self._results.check()
        return self._results.count

    def reached(self) -> bool:
        return False


class _LastResult(_Quiet):
    def __init__(self, results: ResultReader, text: str | None) -> None:
        super().__init__(results)
        self._text = text

    def reached(self) -> bool:
        last = self._results.last
        return self._text is None or (last is not None and same_text(self._text, last.decode().rpartition(";")[2]))


class _LastWindow(_Quiet):
    """The last whole window has nearly always a result, and they come all at once."""

    def __init__(self, results: ResultReader, windows: int) -> None:
        super().__init__(results)
        self._windows = windows

    def reached(self) -> bool:
        last = self._results.last
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
