"""Tailrace: a state engine for PySpark Structured Streaming.

>>> import tailrace as tr                                            # doctest: +SKIP
>>> counts = (tr.stream(bids)                                        # doctest: +SKIP
...     .withWatermark("ts", "10 seconds")
...     .groupBy(tr.window("ts", "10 seconds", "2 seconds"), "auction")
...     .agg(tr.count().alias("bids"), tr.max("price")))
"""

from typing import TYPE_CHECKING

from tailrace.api import tables as table
from tailrace.api.aggregates import (
    avg,
    collect_list,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    median,
    min,
    quantile,
    stddev,
    stddev_samp,
    sum,
    top_k,
)
from tailrace.api.windows import count_window, custom_window, session_window, window
from tailrace.errors import (
    AnalysisError,
    CheckpointError,
    CorruptionError,
    FencedError,
    LockedError,
    ReplayError,
    StateServerError,
    SumOverflowError,
    TableError,
    TailraceError,
    UserFunctionError,
)

if TYPE_CHECKING:
    from tailrace.spark.query.runtime import stream
else:

    def __getattr__(name):
        if name == "stream":
            # State servers need no Spark, and start in half the time without it.
            from tailrace.spark.query.runtime import stream  # lazy: see above

            return stream
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "AnalysisError",
    "CheckpointError",
    "CorruptionError",
    "FencedError",
    "LockedError",
    "ReplayError",
    "StateServerError",
    "SumOverflowError",
    "TableError",
    "TailraceError",
    "UserFunctionError",
    "avg",
    "collect_list",
    "count",
    "count_distinct",
    "count_window",
    "custom_window",
    "first",
    "last",
    "max",
    "mean",
    "median",
    "min",
    "quantile",
    "session_window",
    "stddev",
    "stddev_samp",
    "stream",
    "sum",
    "table",
    "top_k",
    "window",
]
