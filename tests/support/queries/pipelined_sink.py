"""Sinks that are begun before their rows are there, as Tailrace's own formats are when epochs emit much."""

from __future__ import annotations

import math

from tailrace.spark.epoch import query_output
from tailrace.spark.epoch import runner as epochs
from tailrace.spark.sinks import sinks


def begin_sinks_pipelined() -> None:
    """For the rest of this process: functions too, and however little is emitted."""
    query_output.LOCAL_ROWS_MAX = -1
    epochs._PIPELINED_MS_MAX = math.inf
    sinks._Function.pipelined = True
