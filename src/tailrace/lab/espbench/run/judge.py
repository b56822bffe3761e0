"""A run's topics and tables, judged: what should be there, what is, and how long each result took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.lab.espbench.names import Query
from tailrace.lab.espbench.validator import database
from tailrace.lab.espbench.validator.answers import LOW_MF03, Answers, answers, machine_power
from tailrace.lab.espbench.validator.compare import Pairs, Results, Verdict, exactly_once, pairs
from tailrace.lab.espbench.validator.downtimes import Downtime, Downtimes


@dataclass(frozen=True)
class Judgement:
    """``undecided`` and ``stale_max_ms``: see `MachinePower`."""

    right: Answers
    results: Results
    pairs: Pairs
    verdict: Verdict
    undecided: int = 0
    stale_max_ms: float = 0


def judged(
    query: Query,
    inputs: Mapping[int, pa.Table],
    output: pa.Table | None,
    url: str,
    changes: Mapping[int, Sequence[Downtime]] | None = None,
    low_mf03: int = LOW_MF03,
) -> Judgement:
    """``output``: the topic of results; None where they are in the database. ``changes``: of downtimes, oldest first;
    else they are as the database has them now."""
    if output is None:
        right = answers(query, inputs)
        results = database.production_times(url, inputs[query.inputs[0]])
        return Judgement(right, results, pairs(right, results), exactly_once(right, results))
    results = Results.of(output, query.base != "q1")
    if query.base != "q4":
        right = answers(query, inputs)
        return Judgement(right, results, pairs(right, results), exactly_once(right, results))
    known = changes or {place: [downtime] for place, downtime in database.downtimes(url).items()}
    assert results.ids is not None
    reported = dict(zip(results.ids, map(float, results.times_ms)))
    found = machine_power(inputs, Downtimes(known, query.settings["max_age_s"] * 1e3), reported, low_mf03)
    verdict = exactly_once(found.answers, results)
    return Judgement(
        found.answers, results, pairs(found.answers, results), verdict, found.undecided, found.stale_max_ms
    )
