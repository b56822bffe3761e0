"""Tailrace: a state engine for PySpark Structured Streaming.

>>> import tailrace as tr
>>> counts = (tr.stream(spark.readStream.schema("auction bigint, price bigint, ts timestamp").parquet("/data/bids"))
...     .withWatermark("ts", "10 seconds")
...     .groupBy(tr.window("ts", "10 seconds", "2 seconds"), "auction")
...     .agg(tr.count().alias("bids"), tr.max("price")))
"""

from typing import TYPE_CHECKING

from tailrace.api import tables as table
from tailrace.api.windows import count_window as count_window
from tailrace.api.windows import custom_window as custom_window
from tailrace.api.windows import session_window as session_window
from tailrace.api.windows import window as window
from tailrace.errors import AnalysisError as AnalysisError
from tailrace.errors import CheckpointError as CheckpointError
from tailrace.errors import CorruptionError as CorruptionError
from tailrace.errors import FencedError as FencedError
from tailrace.errors import LockedError as LockedError
from tailrace.errors import ReplayError as ReplayError
from tailrace.errors import StateServerError as StateServerError
from tailrace.errors import SumOverflowError as SumOverflowError
from tailrace.errors import TableError as TableError
from tailrace.errors import TailraceError as TailraceError
from tailrace.errors import UserFunctionError as UserFunctionError
from tailrace.operators.aggregate import functions as _functions
from tailrace.operators.aggregate.functions import *

if TYPE_CHECKING:
    from tailrace.spark.query.runtime import stream as stream
else:
    # Type checkers follow the imports: a list here would hide the aggregates, which are listed where they are defined.
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
        "count_window",
        "custom_window",
        "session_window",
        "stream",
        "table",
        "window",
    ]
    __all__ += _functions.__all__

    def __getattr__(name):
        if name == "stream":
            # State servers need no Spark, and start in half the time without it.
            from tailrace.spark.query.runtime import stream  # lazy: see above

            return stream
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"
