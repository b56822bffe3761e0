"""Queries and topics, named as the paper and the original's files name them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """``inputs``: numbers of the streams it reads; 1 and 2 are machines, 3 is production."""

    key: str
    name: str
    inputs: tuple[int, ...]
    to_topic: bool = True

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
        Query("q4", "MachinePower", (1, 2)),
        Query("q5", "ProcessingTimes", (PRODUCTION,), to_topic=False),
        Query("identity", "Identity", (1,)),
    )
}


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
