"""Queries and topics, named as the paper and the original's files name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Query:
    """``inputs``: numbers of the streams it reads; 1 and 2 are machines, 3 is production.

    ``settings``: how it is run. ``set_wise``: the database is updated by sets of records, else one by one.
    ``max_age_s``: of a copy of what the database said, 0 for none. ``changes_s``: a workplace's downtime begins or ends
    so often while the query runs, 0 for never.
    """

    key: str
    name: str
    inputs: tuple[int, ...]
    to_topic: bool = True
    settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """What is asked, however it is run: ``q5`` of ``q5-rows``."""
        return self.key.partition("-")[0]

    @property
    def to_database(self) -> bool:
        return not self.to_topic


PRODUCTION = 3

QUERIES = {
    query.key: query
    for query in (
        Query("q1", "Statistics", (1,)),
        Query("q2", "StochasticOutlierSelection", (1,)),
        Query("q3", "AbsoluteThreshold", (1,)),
        Query("q4", "MachinePower", (1, 2), settings={"max_age_s": 0, "changes_s": 0}),
        Query("q4-copies", "MachinePower", (1, 2), settings={"max_age_s": 2, "changes_s": 5}),
        Query("q5", "ProcessingTimes", (PRODUCTION,), to_topic=False, settings={"set_wise": True}),
        Query("q5-rows", "ProcessingTimes", (PRODUCTION,), to_topic=False, settings={"set_wise": False}),
        Query("identity", "Identity", (1,)),
    )
}


OF_DATABASE = ("q4", "q5")
"""What needs one."""


@dataclass(frozen=True)
class Topics:
    """Of one run: ``<prefix>-<run>-<number>`` for streams, ``<prefix>-<run>-<query>`` for results."""

    prefix: str
    run: int

    def input(self, number: int) -> str:
        return f"{self.prefix}-{self.run}-{number}"

    def output(self, query: Query) -> str:
        return f"{self.prefix}-{self.run}-{query.name}"

    def of(self, query: Query) -> list[str]:
        """All topics of a query's run; results in a database leave theirs empty."""
        return [*(self.input(number) for number in query.inputs), self.output(query)]
