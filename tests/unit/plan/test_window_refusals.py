"""What is refused of windows, of the stores that a user chooses for them, and of the options of stores."""

from __future__ import annotations

import pytest

import tailrace as tr
from support.bids import bids
from support.window_streams import FUNCTIONS, MARKED, WINDOWS, days, grouped, plan_of
from tailrace.api.options import parse_options, split_options
from tailrace.api.relations import OutputMode
from tailrace.api.windows import count_window, custom_window, session_window, window
from tailrace.errors import AnalysisError


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: count_window(0), ("count_window: size", "0")),
        (lambda: count_window(True), ("count_window: size", "True")),
        (lambda: count_window("10"), ("count_window: size", "'10'")),
        (lambda: count_window(10, 11), ("count_window: slide", "from 1 to the window's size (10)", "11")),
        (lambda: count_window(10, 0), ("count_window: slide", "0")),
        (lambda: count_window(10, "at"), ("count_window: slide", "'at'")),
        (lambda: count_window(10, eventTime=""), ("eventTime", "name of an output column")),
        (lambda: count_window(10).alias(None), ("alias",)),
        (lambda: bids().groupBy(count_window(10, eventTime="at")), ("eventTime", "withWatermark")),
        (lambda: bids().groupBy(count_window(10)).agg(tr.last("price")), ("last", "no event time")),
        (lambda: bids().groupBy(count_window(10), window("ts", "1 second")), ("one window",)),
        (lambda: custom_window(5, days), ("custom_window: timeColumn", "int")),
        (lambda: custom_window("ts", "days"), ("custom_window: assign", "'days'")),
        (lambda: custom_window("ts", None), ("custom_window: assign", "None")),
        (lambda: custom_window("ts", days, 7), ("custom_window: trigger", "7")),
        (lambda: custom_window("ts", days).alias(""), ("alias",)),
        (lambda: bids().groupBy(custom_window("price", days)), ("custom_window", "price", "timestamp")),
        (lambda: MARKED.groupBy(custom_window("ntz", days)), ("custom_window", "'ntz'", "same column")),
        (
            lambda: grouped("custom").count().groupBy("window"),
            ("your own function", "tailrace.window('window'", "custom_window('window'"),
        ),
        (
            lambda: (
                grouped("custom").agg(tr.count().alias("n")).groupBy(window("window", "1 hour")).agg(tr.max("window"))
            ),
            ("cannot be aggregated",),
        ),
        (lambda: bids().groupBy("auction").store("RocksDB"), ("store takes one of RMW, AAR, AUR", "'RocksDB'")),
        (lambda: bids().groupBy("auction").store(None), ("store takes one of",)),
        (
            lambda: FUNCTIONS.groupBy(count_window(10, eventTime="at")).applyInWindow(days, "n bigint"),
            ("applyInWindow", "eventTime", "every key has one of that number"),
        ),
        (
            lambda: FUNCTIONS.groupBy(session_window("ts", "1 second").alias("price")).applyInWindow(days, "n bigint"),
            ("applyInWindow", "'price'", "alias"),
        ),
        (
            lambda: FUNCTIONS.groupBy(count_window(3).alias("n")).applyInWindow(days, "n bigint"),
            ("applyInWindow", "'n'", "alias"),
        ),
        (
            lambda: FUNCTIONS.groupBy(WINDOWS["tumbling"], "auction").applyInWindow(days, "n bigint"),
            ("applyInWindow", "'auction'", "some of the keys", "perKey=True", "group by the window alone"),
        ),
        (
            lambda: FUNCTIONS.groupBy("auction", WINDOWS["custom"]).applyInWindow(days, "n bigint"),
            ("applyInWindow", "'auction'", "perKey=True"),
        ),
        (
            lambda: FUNCTIONS.groupBy(WINDOWS["tumbling"]).applyInWindow(days, "n bigint", perKey=True),
            ("perKey=True needs the columns that make a key",),
        ),
        (
            lambda: FUNCTIONS.groupBy(WINDOWS["tumbling"]).applyInWindow(days, "n bigint", perKey="yes"),
            ("perKey must be True or False", "'yes'"),
        ),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(AnalysisError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_append_needs_a_watermark_for_windows_of_a_users_own():
    stream = bids().groupBy(custom_window("ts", days), "auction").count()
    with pytest.raises(AnalysisError, match="withWatermark"):
        stream.writeStream.outputMode("append").format("noop").option("checkpointLocation", "/data/q").start()
    assert not plan_of(stream, OutputMode.UPDATE).operator.watermarked


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("readBatchRatio", "-0.1"),
        ("readBatchRatio", "1.1"),
        ("readBatchRatio", "nan"),
        ("readBatchRatio", "much"),
        ("readBatchRatio", ""),
        ("maxSpaceAmplification", "1"),
        ("maxSpaceAmplification", "inf"),
    ],
)
def test_a_bad_number_is_refused_with_its_limits(name, value):
    with pytest.raises(AnalysisError, match=rf"option '{name}' must be a number from .* to .*, but is '{value}'"):
        parse_options({name: value})
    with pytest.raises(AnalysisError, match=f"did you mean '{name}'"):
        split_options({name + "s": value})
