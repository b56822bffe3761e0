"""Counts of words, devices and users: Spark's example programs, and what its guide says of groups and windows."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from support.guide import data
from support.guide.program import Frames, Program

_FILES = "files instead of a socket"
_WATERMARK = "with a watermark, without which Spark ends no window"


def _words(frames: Frames, name: str = "word") -> DataFrame:
    return frames["lines"].select(F.explode(F.split("value", " ")).alias(name), "timestamp")


def _word_count(frames: Frames) -> DataFrame:
    return _words(frames).groupBy("word").count()


def _word_count_of_bytes(frames: Frames) -> DataFrame:
    values = frames["lines"].selectExpr("CAST(value AS STRING)", "timestamp")
    return _word_count({"lines": values})


def _windowed(frames: Frames) -> DataFrame:
    words = _words(frames)
    return words.groupBy(F.window(words.timestamp, "10 minutes", "5 minutes"), words.word).count()


def _windowed_in_order(frames: Frames) -> DataFrame:
    return _windowed(frames).orderBy("window")


def _watermarked(frames: Frames) -> DataFrame:
    words = _words(frames).withWatermark("timestamp", "10 minutes")
    return words.groupBy(F.window("timestamp", "10 minutes", "5 minutes"), "word").count()


def _sessionization(frames: Frames) -> DataFrame:
    events = _words(frames, "sessionId").withColumnRenamed("timestamp", "eventTime")
    session = F.session_window("eventTime", "10 seconds").alias("session")
    counts = events.withWatermark("eventTime", "1 minute").groupBy(session, "sessionId")
    return counts.agg(F.count("*").alias("numEvents")).selectExpr(
        "sessionId",
        "CAST(session.start AS LONG) AS start",
        "CAST(session.end AS LONG) AS end",
        "CAST(session.end AS LONG) - CAST(session.start AS LONG) AS durationMs",
        "numEvents",
    )


def _sessions(frames: Frames) -> DataFrame:
    events = frames["users"].withWatermark("timestamp", "10 minutes")
    return events.groupBy(F.session_window("timestamp", "5 minutes"), "userId").count()


def _sessions_of_own_gaps(frames: Frames) -> DataFrame:
    events = frames["users"].withWatermark("timestamp", "10 minutes")
    gap = F.when(events.userId == "user1", "5 seconds").when(events.userId == "user2", "20 seconds")
    return events.groupBy(F.session_window("timestamp", gap.otherwise("5 minutes")), "userId").count()


def _windows_by_their_time(frames: Frames) -> DataFrame:
    counts = _watermarked(frames)
    return counts.groupBy(F.window(F.window_time("window"), "1 hour"), "word").count()


def _windows_of_windows(frames: Frames) -> DataFrame:
    return _watermarked(frames).groupBy(F.window("window", "1 hour"), "word").count()


def _by_kind(frames: Frames) -> DataFrame:
    return frames["devices"].groupBy("deviceType").count()


def _by_device(frames: Frames) -> DataFrame:
    return frames["devices"].where("signal > 10").groupBy("device").count()


def _sql(frames: Frames) -> DataFrame:
    frames["devices"].createOrReplaceTempView("guide_updates")
    return frames["devices"].sparkSession.sql("select count(*) from guide_updates")


_LINES, _CLOSE_LINES = {"lines": data.lines()}, {"lines": data.lines(timedelta(seconds=20))}
_USERS, _DEVICES = {"users": data.users()}, {"devices": data.devices()}

PROGRAMS = (
    Program("word count", "structured_network_wordcount.py", "complete", _LINES, _word_count, _FILES),
    Program(
        "word count of Kafka's records",
        "structured_kafka_wordcount.py",
        "complete",
        {"lines": data.lines(binary=True)},
        _word_count_of_bytes,
        "files with Kafka's column of bytes",
    ),
    Program(
        "word count in windows",
        "structured_network_wordcount_windowed.py",
        "complete",
        _LINES,
        _windowed_in_order,
        _FILES,
    ),
    Program(
        "sessions of words",
        "structured_sessionization.py",
        "append",
        _CLOSE_LINES,
        _sessionization,
        f"{_FILES}; append mode and a watermark: Spark refuses its own example's update mode",
    ),
    Program("count of each kind of device", "Basic Operations", "update", _DEVICES, _by_kind, keys=("deviceType",)),
    Program("count of all rows, in SQL", "Basic Operations", "complete", _DEVICES, _sql),
    Program("windows", "Window Operations on Event Time", "update", _LINES, _windowed, keys=("window", "word")),
    Program("windows with a watermark", "Handling Late Data and Watermarking", "append", _LINES, _watermarked),
    Program(
        "windows with a watermark, updated",
        "Handling Late Data and Watermarking",
        "update",
        _LINES,
        _watermarked,
        keys=("window", "word"),
    ),
    Program("sessions", "Types of time windows", "append", _USERS, _sessions),
    Program("sessions with a gap of each row", "Types of time windows", "append", _USERS, _sessions_of_own_gaps),
    Program(
        "windows of window_time",
        "Representation of the time for time window",
        "append",
        _LINES,
        _windows_by_their_time,
        _WATERMARK,
    ),
    Program(
        "windows of windows",
        "Representation of the time for time window",
        "append",
        _LINES,
        _windows_of_windows,
        _WATERMARK,
    ),
    Program("count of each device with a signal", "Output Sinks", "complete", _DEVICES, _by_device),
)
