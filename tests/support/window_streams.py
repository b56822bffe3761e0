"""Streams over windows of every kind, and the plans of what is made of them. No session, no rows."""

from __future__ import annotations

import numpy as np

from support.bids import SCHEMA, RecordingRuntime, bids
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.api.windows import count_window, custom_window, session_window, window
from tailrace.plan.physical import plan_relation
from tailrace.types import BIGINT, Field

MARKED = bids().withWatermark("ts", "10 seconds")


class WithSchemas(RecordingRuntime):
    def fields(self, schema):
        return (Field("n", BIGINT),)


def days(times):
    starts = times.astype("datetime64[D]")
    return starts, starts + np.timedelta64(1, "D")


def soon(starts, ends, newest):
    return newest


def plan_of(stream, mode=OutputMode.APPEND, **options):
    return plan_relation(stream.source, mode, Options(**options))


WINDOWS = {
    "tumbling": window("ts", "10 seconds"),
    "sliding": window("ts", "10 seconds", "5 seconds"),
    "session": session_window("ts", "10 seconds"),
    "count": count_window(10),
    "custom": custom_window("ts", days),
    "global": None,
}


def grouped(kind, store=None):
    relation = MARKED.groupBy("auction", *([] if WINDOWS[kind] is None else [WINDOWS[kind]]))
    return relation if store is None else relation.store(store)


FUNCTIONS = Stream("a DataFrame", SCHEMA[:4], WithSchemas()).withWatermark("ts", "10 seconds")
