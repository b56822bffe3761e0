"""Impressions of ads and clicks on them, and events that come twice."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from support.guide import data
from support.guide.program import Frames, Program

_RANGE = """
    clickAdId = impressionAdId AND
    clickTime >= impressionTime AND
    clickTime <= impressionTime + interval 1 hour
"""


def _sides(frames: Frames) -> tuple[DataFrame, DataFrame]:
    shown = frames["impressions"].withWatermark("impressionTime", "2 hours")
    return shown, frames["clicks"].withWatermark("clickTime", "3 hours")


def _joined(frames: Frames, how: str) -> DataFrame:
    shown, clicked = _sides(frames)
    return shown.join(clicked, F.expr(_RANGE), how)


def _counts_joined(frames: Frames) -> DataFrame:
    shown, clicked = _sides(frames)
    clicks = clicked.groupBy("clickAdId", F.window("clickTime", "1 hour")).count()
    impressions = shown.groupBy("impressionAdId", F.window("impressionTime", "1 hour")).count()
    return clicks.join(impressions, "window", "inner").toDF("window", "clicked", "clicks", "shown", "times")


def _joined_counted(frames: Frames, how: str) -> DataFrame:
    return _joined(frames, how).groupBy("clickAdId", F.window("clickTime", "1 hour")).count()


def _with_table(frames: Frames, how: str) -> DataFrame:
    table = frames["clicks"].sparkSession.createDataFrame([(3, "shoes"), (5, "books")], "clickAdId long, about string")
    return frames["clicks"].join(table, "clickAdId", how)


def _once_ever(frames: Frames) -> DataFrame:
    return frames["events"].dropDuplicates(["guid"]).select("guid", "payload")


def _once_by_time(frames: Frames) -> DataFrame:
    return frames["events"].withWatermark("eventTime", "10 seconds").dropDuplicates(["guid", "eventTime"])


def _once_within(frames: Frames) -> DataFrame:
    events = frames["events"].withWatermark("eventTime", "10 hours")
    return events.dropDuplicatesWithinWatermark(["guid"]).select("guid", "payload")


_ADS = {"impressions": data.impressions(), "clicks": data.clicks()}
_CLICKS, _EVENTS = {"clicks": data.clicks()}, {"events": data.events()}
_OUTER = ("leftOuter", "rightOuter", "fullOuter", "leftSemi")
_KEPT = "without the time of the row that is kept, which Spark leaves open"

PROGRAMS = (
    Program("inner join", "Inner Joins with optional Watermarking", "append", _ADS, partial(_joined, how="inner")),
    *(
        Program(f"{how} join", "Outer Joins with Watermarking", "append", _ADS, partial(_joined, how=how))
        for how in _OUTER
    ),
    Program(
        "inner join, the fastest stream's watermark",
        "Policy for handling multiple watermarks",
        "append",
        _ADS,
        partial(_joined, how="inner"),
        confs={"spark.sql.streaming.multipleWatermarkPolicy": "max"},
    ),
    Program("windows of two streams, joined", "Support matrix for joins", "append", _ADS, _counts_joined),
    Program(
        "leftOuter join, then windows",
        "Support matrix for joins",
        "append",
        _ADS,
        partial(_joined_counted, how="leftOuter"),
    ),
    Program(
        "inner join, then windows", "Support matrix for joins", "append", _ADS, partial(_joined_counted, how="inner")
    ),
    Program("inner join with a table", "Stream-static Joins", "append", _CLICKS, partial(_with_table, how="inner")),
    Program(
        "left_outer join with a table", "Stream-static Joins", "append", _CLICKS, partial(_with_table, how="left_outer")
    ),
    Program("duplicates, for ever", "Streaming Deduplication", "append", _EVENTS, _once_ever, _KEPT),
    Program("duplicates with their time", "Streaming Deduplication", "append", _EVENTS, _once_by_time),
    Program("duplicates within the watermark", "Streaming Deduplication", "append", _EVENTS, _once_within, _KEPT),
)
