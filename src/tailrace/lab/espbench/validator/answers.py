"""The right results of each query, from the input topics as they are: DuckDB and numpy, no code of any system.

Times are the broker's append times. An answer knows when what caused it was there: the latency of a result is the time
from then until the result itself was there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.lab.espbench.envelope import taken_apart
from tailrace.lab.espbench.names import Query
from tailrace.lab.espbench.validator.downtimes import Downtimes

WINDOW_MS = 1_000
WINDOW_RECORDS = 500
PERPLEXITY, STEPS, THRESHOLD = 30.0, 50, 0.5
HIGH_MF01, LOW_MF03 = 14_963, 8_105


@dataclass(frozen=True)
class Answers:
    """In order, of each result: its text behind the message id, the id (where there is one), its cause's time."""

    texts: list[str]
    ids: list[int] | None
    caused_ms: list[int]

    def __len__(self) -> int:
        return len(self.texts)


def answers(query: Query, inputs: Mapping[int, pa.Table]) -> Answers:
    """``inputs``: of each stream its topic, as `Broker.read` gives it. Query 4 needs more: ``machine_power``."""
    return _OF_ONE_STREAM[query.base](_Stream.of(inputs[query.inputs[0]], query.inputs[0]))


@dataclass(frozen=True)
class MachinePower:
    """Right answers of query 4 where downtimes change: those that may or may not be there count as they are.

    ``undecided``: how many these are. ``stale_max_ms``: the longest that a change was not gone by.
    """

    answers: Answers
    undecided: int
    stale_max_ms: float


def machine_power(
    inputs: Mapping[int, pa.Table], downtimes: Downtimes, reported: Mapping[int, float], low_mf03: int = LOW_MF03
) -> MachinePower:
    """Both machines' records by their time; those of one machine in its topic's order.

    ``reported``: ids of machine 1's records that have a result, and when that was there.
    """
    found, undecided, stale_ms = [], 0, 0.0
    streams = {number: _Stream.of(table, number) for number, table in inputs.items()}
    times_ms = dict(zip(streams[1].ids.tolist(), streams[1].times_ms.tolist()))
    longest_ms = max((at_ms - times_ms.get(id_, at_ms) for id_, at_ms in reported.items()), default=float("inf"))
    for number, stream in streams.items():
        workplaces = stream.column(-1)
        for at in np.flatnonzero(stream.column(4) < low_mf03):
            time_ms, id_, workplace = int(stream.times_ms[at]), int(stream.ids[at]), int(workplaces[at])
            there = number == 1 and id_ in reported
            until_ms = reported[id_] if there else time_ms + longest_ms
            suppressed = downtimes.suppressed(workplace, time_ms, until_ms)
            if suppressed is None:
                undecided += 1
                stale_ms = max(stale_ms, downtimes.stale_ms(workplace, time_ms, there))
            if not suppressed and (suppressed is not None or there):
                found.append((time_ms, number, id_, stream.rows[int(at)].as_py()))
    found.sort(key=lambda each: each[:2])
    ids = [id_ for _, _, id_, _ in found]
    right = Answers([row for *_, row in found], ids, [each[0] for each in found])
    return MachinePower(right, undecided, stale_ms)


@dataclass(frozen=True)
class _Stream:
    ids: np.ndarray
    times_ms: np.ndarray
    values: pa.Array
    rows: pa.Array

    @classmethod
    def of(cls, table: pa.Table, number: int) -> _Stream:
        values = table["value"].combine_chunks().cast(pa.string())
        parts = taken_apart(values, f"stream {number}")
        ids = parts["id"].to_numpy()
        return cls(ids, table["time_ms"].to_numpy(), values, parts["row"].combine_chunks())

    def column(self, number: int) -> np.ndarray:
        """A column of integers of the rows; -1 is the last."""
        fields = pc.split_pattern(self.rows, "\t")
        if number < 0:
            number += len(fields[0])
        values: np.ndarray = pc.list_element(fields, number).cast(pa.int64()).to_numpy(zero_copy_only=False)
        return values

    def chosen(self, places: np.ndarray) -> Answers:
        rows = self.rows.take(pa.array(places)).to_pylist()
        return Answers(rows, self.ids[places].tolist(), self.times_ms[places].tolist())


def _statistics(stream: _Stream) -> Answers:
    """The last window is left out: it may have gone on."""
    records = pa.table({"time_ms": stream.times_ms, "mf01": stream.column(2)})
    found = duckdb.execute(
        f"""
        SELECT time_ms - time_ms % {WINDOW_MS} + {WINDOW_MS}, avg(mf01), min(mf01), max(mf01), count(*)
        FROM records GROUP BY 1 ORDER BY 1
        """
    ).fetchall()[:-1]
    assert records is not None
    texts = [f"{average:.4f},{least},{most},{count}" for _, average, least, most, count in found]
    return Answers(texts, None, [end for end, *_ in found])


def _outliers(stream: _Stream) -> Answers:
    """An incomplete last window gives nothing."""
    points = np.stack([stream.column(2), stream.column(3)], axis=1).astype(float)
    texts, ids, caused = [], [], []
    for first in range(0, len(points) - WINDOW_RECORDS + 1, WINDOW_RECORDS):
        window = slice(first, first + WINDOW_RECORDS)
        probabilities = outlier_probabilities(points[window], PERPLEXITY)
        order = np.argsort(stream.ids[window], kind="stable")
        for place in order[probabilities[order] >= THRESHOLD]:
            at = first + int(place)
            rounded = np.floor(probabilities[place] * 100 + 0.5) / 100
            texts.append(f"{stream.rows[at]}\t{rounded:.2f}")
            ids.append(int(stream.ids[at]))
            caused.append(int(stream.times_ms[window][-1]))
    return Answers(texts, ids, caused)


def _thresholds(stream: _Stream) -> Answers:
    return stream.chosen(np.flatnonzero(stream.column(2) > HIGH_MF01))


def _identity(stream: _Stream) -> Answers:
    return stream.chosen(np.arange(len(stream.ids)))


def _production_times(stream: _Stream) -> Answers:
    return stream.chosen(np.arange(len(stream.ids)))


_OF_ONE_STREAM: dict[str, Callable[[_Stream], Answers]] = {
    "q1": _statistics,
    "q2": _outliers,
    "q3": _thresholds,
    "q5": _production_times,
    "identity": _identity,
}


def outlier_probabilities(points: np.ndarray, perplexity: float) -> np.ndarray:
    """Stochastic Outlier Selection as it is defined, all points at once."""
    n = len(points)
    distances = np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2))
    np.fill_diagonal(distances, np.inf)
    finite = np.where(np.isinf(distances), 0.0, distances)
    beta, low, high = np.ones(n), np.full(n, -np.inf), np.full(n, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(STEPS):
            affinity = np.exp(-beta[:, None] * distances)
            total = affinity.sum(axis=1)
            entropy = np.log(total) + beta * (finite * affinity).sum(axis=1) / total
            above = entropy > np.log(perplexity)
            low, high = np.where(above, beta, low), np.where(above, high, beta)
            doubled = np.where(np.isinf(high), 2 * beta, (beta + high) / 2)
            halved = np.where(np.isinf(low), beta / 2, (beta + low) / 2)
            beta = np.where(above, doubled, halved)
        affinity = np.exp(-beta[:, None] * distances)
        binding = affinity / affinity.sum(axis=1, keepdims=True)
    probabilities: np.ndarray = np.prod(1 - np.where(np.isnan(binding), 0.0, binding), axis=0)
    return probabilities
