"""Tailrace: a state engine for PySpark Structured Streaming.

>>> import tailrace as tr
>>> counts = (tr.stream(spark.readStream.schema("auction bigint, price bigint, ts timestamp").parquet("/data/bids"))
...     .withWatermark("ts", "10 seconds")
...     .groupBy(tr.window("ts", "10 seconds", "2 seconds"), "auction")
...     .agg(tr.count().alias("bids"), tr.max("price")))
"""

from typing import TYPE_CHECKING

import tailrace.state as state  # noqa: F401 - public
from tailrace.api import tables as table  # noqa: F401 - public; `__all__` comes from `__getattr__`
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

if TYPE_CHECKING:
    from tailrace.operators.aggregate.functions import *
    from tailrace.spark.plan_reader.session import disable as disable
    from tailrace.spark.plan_reader.session import enable as enable
    from tailrace.spark.plan_reader.session import sql as sql
    from tailrace.spark.plan_reader.writer import writeStream as writeStream
    from tailrace.spark.query.runtime import stream as stream
else:
    # Type checkers follow the imports: a list here would hide the aggregates, which are listed where they are defined.
    _LIGHT = [
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
        "state",
        "table",
        "window",
    ]
    _PLAIN = ["disable", "enable", "sql", "writeStream"]

    def __getattr__(name):
        """What needs Spark, or Arrow and compiled kernels, is imported when it is first asked for.

        Every process that imports a part of this package comes through here: the command, tasks, state servers.
        """
        if name == "stream":
            from tailrace.spark.query.runtime import stream  # lazy: see above

            return stream
        if name in _PLAIN:
            from tailrace.spark.plan_reader import session  # lazy: see above

            return getattr(session, name)
        if name == "__all__" or not name.startswith("_"):
            from tailrace.operators.aggregate import functions  # lazy: see above

            if name == "__all__":
                return [*_LIGHT, *_PLAIN, "stream", *functions.__all__]
            if name in functions.__all__:
                return getattr(functions, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})


__version__ = "0.1.0"
