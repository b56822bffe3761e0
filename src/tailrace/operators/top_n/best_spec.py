"""Which rows of a group are the best, and how many of them are given: plain data. Nothing here touches Spark or Arrow.

Rows are ordered by the columns asked for, then by event time (earlier is better), then by all other kept columns
(smaller is better); null is smaller than anything, NaN larger. Of rows that are equal in all of these it does not
matter which is which.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    column: str
    ascending: bool


@dataclass(frozen=True)
class Best:
    """The ``n`` best rows of each group, with the columns ``shown`` and their rank, from 1 on.

    ``time``: name of an output column with the largest event time of *all* rows of the group, the best or not.
    """

    n: int
    order: tuple[Order, ...]  # the most important first
    shown: tuple[str, ...]
    rank: str  # name of the output column
    time: str | None = None
