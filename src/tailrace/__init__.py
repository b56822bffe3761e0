"""Tailrace: a state engine for PySpark Structured Streaming.

>>> import tailrace as tr                                            # doctest: +SKIP
>>> counts = (tr.stream(bids)                                        # doctest: +SKIP
...     .withWatermark("ts", "10 seconds")
...     .groupBy(tr.window("ts", "10 seconds", "2 seconds"), "auction")
...     .agg(tr.count().alias("bids"), tr.max("price")))
"""

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
    TailraceError,
    UserFunctionError,
)
from tailrace.spark.runtime import stream

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
    "top_k",
    "window",
]
