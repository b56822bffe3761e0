"""What a user may ask of process and of a time-to-live, and what is refused with which words."""

import pytest

import tailrace as tr
from support.bids import SCHEMA, RecordingRuntime
from tailrace.api.stream import Stream
from tailrace.api.windows import count_window, session_window, window
from tailrace.errors import AnalysisError
from tailrace.types import DataType, Field

OUTPUT, STATE = "auction bigint, n bigint, at timestamp", "n bigint, until timestamp"


class Runtime(RecordingRuntime):
    def fields(self, schema):
        return tuple(Field(*(part if at == 0 else DataType(part) for at, part in enumerate(each.split())))
                     for each in schema.split(", ") if each)  # fmt: skip


def bids(time="ts"):
    made = Stream("a DataFrame", SCHEMA, Runtime())
    return made if time is None else made.withWatermark(time, "10 seconds")


def function(rows, state):
    return rows, state


def process(stream=None, keys=("auction",), schema=OUTPUT, state=STATE, columns=("price",), **more):
    grouped = (bids() if stream is None else stream).groupBy(*keys)
    return grouped.process(function, schema, state=state, columns=columns, **more)


def refused(call, *words):
    with pytest.raises(AnalysisError) as caught:
        call()
    for word in words:
        assert word in str(caught.value), caught.value


def test_what_was_asked_is_kept():
    relation = process(timers="UNTIL", eventTime="AT", columns=["PRICE", "auction", "ts"])
    made = relation.source
    assert relation.columns == ["auction", "n", "at"]
    assert [field.name for field in made.columns] == ["price"]  # keys and event time come anyway
    assert made.timers == "until" and not made.timers_processing
    assert relation.watermark.column.name == "at"
    assert process().watermark is None


def test_all_columns_by_default():
    plain = tuple(field for field in SCHEMA if field.type.kind is not None)
    made = Stream("a DataFrame", plain, Runtime()).groupBy("auction").process(function, OUTPUT, state=STATE).source
    assert [field.name for field in made.columns] == [field.name for field in plain if field.name != "auction"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bids().groupBy("auction").process(7, OUTPUT, state=STATE), ["process takes a function", "7"]),
        (lambda: process(schema=""), ["schema has no column"]),
        (lambda: process(schema="a map<string,int>"), ["'a'", "map<string,int>"]),
        (lambda: process(schema="a int, A int"), ["'A'"]),
        (lambda: process(state=""), ["state has no column", "state='"]),
        (lambda: process(state="auction bigint"), ["'auction'", "each once"]),
        (lambda: process(state="n bigint, N int"), ["'n'"]),
        (lambda: process(state="tags array<string>"), ["'tags'", "cannot be kept"]),
        (lambda: process(columns=["pric"]), ["'pric'", "Did you mean 'price'?"]),
        (lambda: process(columns="price"), ["list of names", "['price']"]),
        (lambda: process(columns=["tags"]), ["'tags'", "columns=[...]"]),
        (lambda: process(bids(None), keys=(), columns=[]), ["columns is empty"]),
        (lambda: process(keys=("auction", window("ts", "1 second"))), ["remove the window", "applyInWindow"]),
        (lambda: process(timers="soon"), ["timers", "'soon'", "n, until"]),
        (lambda: process(timers="n"), ["'n'", "bigint", "timestamp"]),
        (lambda: process(bids(None), timers="until"), ["withWatermark", "processingTime"]),
        (lambda: process(timers="until", timeMode="wall clock"), ["timeMode", "'wall clock'"]),
        (lambda: process(eventTime="n"), ["eventTime", "'n'", "timestamp"]),
        (lambda: process(eventTime="ts"), ["'ts'", "auction, n, at"]),
        (lambda: process(bids(None), eventTime="at"), ["withWatermark"]),
        (lambda: bids().groupBy("auction").store("AUR").process(function, OUTPUT, state=STATE), ["'AUR'"]),
        (lambda: process().writeStream.outputMode("update").format("noop").option("checkpointLocation", "x").start(),
         ["append"]),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(call, words):
    refused(call, *words)


def test_timers_and_ttl_in_processing_time_need_no_watermark():
    made = process(bids(None).withStateTtl("1 hour", "processingTime"), timers="until", timeMode="ProcessingTime")
    assert made.source.timers_processing and made.source.state_ttl.processing
    assert made.source.state_ttl.span == 3_600_000_000


def test_a_time_to_live_is_for_one_operator():
    rolling = bids().withStateTtl("1 hour").groupBy("auction").agg(tr.count())
    assert rolling.source.state_ttl.span == 3_600_000_000 and not rolling.source.state_ttl.processing
    assert process(bids().withStateTtl("1 hour"), eventTime="at").groupBy("n").agg(tr.count()).source.state_ttl is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bids(None).withStateTtl("1 hour"), ["withWatermark", "processingTime"]),
        (lambda: bids().withStateTtl("0 seconds"), ["withStateTtl: ttl", "longer than zero"]),
        (lambda: bids().withStateTtl("soon"), ["withStateTtl: ttl"]),
        (lambda: bids().withStateTtl("1 hour", timeMode="local"), ["timeMode", "'local'"]),
        (lambda: bids().withStateTtl("1 hour").withStateTtl("2 hours"), ["already"]),
        (lambda: ttl().groupBy(window("ts", "1 second")).agg(tr.count()), ["windows of time end"]),
        (
            lambda: ttl().groupBy(session_window("ts", "1 second")).agg(tr.count()),
            ["windows of time end"],
        ),
        (
            lambda: ttl().groupBy(window("ts", "1 second")).applyInWindow(function, OUTPUT, ["price"]),
            ["windows of time end"],
        ),
        (lambda: ttl().join(other(), "auction"), ["join(..., ttl='1 hour')"]),
        (lambda: other().join(ttl(), "auction"), ["join(..., ttl='1 hour')"]),
        (lambda: ttl().dropDuplicatesWithinWatermark(["auction"]), ["use dropDuplicates"]),
        (lambda: ttl().groupBy(window("ts", "1 second")).topN(3, "price", columns=["price"]), ["windows of time end"]),
    ],
)
def test_a_time_to_live_that_makes_no_sense_is_refused(call, words):
    refused(call, *words)


@pytest.mark.parametrize("mode", ["eventTime", "processingTime"])
def test_keys_of_all_that_keeps_keys_for_ever_may_be_forgotten(mode):
    best = ttl(mode).groupBy("auction").topN(3, "price", columns=["price"])
    unique = ttl(mode).dropDuplicates(["auction"])
    counted = ttl(mode).groupBy(count_window(5), "auction").agg(tr.count())
    listed = ttl(mode).groupBy(count_window(5), "auction").applyInWindow(function, OUTPUT, ["price"])
    for made in (best, unique, counted, listed):
        assert made.source.state_ttl.span == 3_600_000_000
        assert made.source.state_ttl.processing is (mode == "processingTime")
        assert made.ttl is None


def ttl(mode="eventTime"):
    stream = Stream("a DataFrame", tuple(f for f in SCHEMA if f.type.kind is not None), Runtime())
    return stream.withWatermark("ts", "10 seconds").withStateTtl("1 hour", mode)


def other():
    fields = (Field("auction", DataType("bigint")), Field("at", DataType("timestamp")))
    return Stream("a DataFrame", fields, Runtime()).withWatermark("at", "1 second")
