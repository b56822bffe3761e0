import pytest

import tailrace as tr
from support.bids import TYPES, RecordingRuntime, bids
from tailrace.api.windows import window
from tailrace.errors import AnalysisError


class FakeColumn:
    """Behaves like Spark's Column: compares to another, and has no truth."""

    def __eq__(self, other):
        return FakeColumn()

    def __bool__(self):
        raise ValueError("no truth in a column")


def refused(call, *words):
    with pytest.raises(AnalysisError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


# Columns


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.withWatermark("tss", "1 second"),
        lambda s: s.groupBy("tss"),
        lambda s: s.groupBy(window("tss", "1 second")),
        lambda s: s.groupBy().agg(tr.count("tss")),
    ],
)
def test_an_unknown_column_lists_the_columns_and_the_closest(call):
    refused(lambda: call(bids()), "'tss'", "Did you mean 'ts'?", ", ".join(TYPES))


def test_columns_are_found_whatever_their_case_and_called_by_their_own_name():
    stream = bids().withWatermark("TS", "1 second").groupBy(window("Ts", "1 second"), "AUCTION").agg(tr.max("PRICE"))
    definition = stream.source
    assert definition.watermark.column.name == "ts"
    assert definition.window.time_column == "ts"
    assert stream.columns == ["window", "auction", "max(price)"]


def test_backticks_quote_a_name_with_a_dot():
    assert bids().groupBy("`a.b`").agg(tr.count("`a.b`")).columns == ["a.b", "count(a.b)"]


def test_a_field_of_a_struct_is_refused_with_the_way_out():
    refused(lambda: bids().groupBy("person.id"), "person.id", "withColumn")


# Watermark


@pytest.mark.parametrize("column", [name for name, type_ in TYPES.items() if not type_.startswith("timestamp")])
def test_a_watermark_needs_a_timestamp(column):
    refused(lambda: bids().withWatermark(f"`{column}`", "1 second"), column, TYPES[column], "timestamp", "cast")


@pytest.mark.parametrize("column", ["ts", "ntz"])
def test_a_watermark_on_a_timestamp(column):
    assert bids().withWatermark(column, "0 seconds").watermark.delay == 0


@pytest.mark.parametrize("delay", ["-1 second", "soon", "1 month", 10])
def test_a_bad_delay_names_the_argument(delay):
    refused(lambda: bids().withWatermark("ts", delay), "delayThreshold", "for example")


def test_a_second_watermark_is_refused():
    refused(lambda: bids().withWatermark("ts", "1 second").withWatermark("ntz", "1 second"), "already", "'ts'")


def test_a_window_is_over_the_watermarks_column():
    stream = bids().withWatermark("ts", "1 second")
    refused(lambda: stream.groupBy(window("ntz", "1 second")), "'ntz'", "'ts'", "same column")


# Group columns


@pytest.mark.parametrize(
    "column", ["auction", "price", "tiny", "small", "channel", "open", "day", "ts", "ntz", "cost", "wide", "raw"]
)
def test_supported_keys(column):
    assert bids().groupBy(column).count().columns == [column, "count"]


@pytest.mark.parametrize(
    ("column", "advice"),
    [("score", "decimal"), ("ratio", "decimal"), ("tags", "to_json"), ("extra", "to_json"), ("person", "fields")],
)
def test_unsupported_keys_list_the_supported_types(column, advice):
    types = "integers, string, boolean, date, timestamp, timestamp_ntz, decimal, binary"
    refused(lambda: bids().groupBy(column), column, TYPES[column], types, advice)


@pytest.mark.parametrize("call", [lambda s: s.groupBy("nocase"), lambda s: s.groupBy().agg(tr.max("nocase"))])
def test_collations_are_refused(call):
    refused(lambda: call(bids()), "nocase", "string collate UNICODE_CI", "UTF8_BINARY")


def test_no_group_column_is_one_group():
    assert bids().groupBy().count().columns == ["count"]
    assert bids().agg(tr.count()).columns == ["count(1)"]


def test_group_columns_may_come_as_a_list():
    assert bids().groupBy(["auction", "channel"]).count().columns == ["auction", "channel", "count"]


def test_a_window_keeps_its_place():
    stream = bids().groupBy("auction", window("ts", "1 second").alias("w"), "channel").count()
    assert stream.columns == ["auction", "w", "channel", "count"]
    assert stream.source.window_position == 1


def test_two_windows_are_refused():
    refused(lambda: bids().groupBy(window("ts", "1 second"), window("ts", "2 seconds")), "one window")


def test_a_window_is_over_a_timestamp():
    refused(lambda: bids().groupBy(window("price", "1 second")), "price", "int", "timestamp")


@pytest.mark.parametrize("key", [FakeColumn(), 5, None])
def test_what_is_no_column_is_refused(key):
    refused(lambda: bids().groupBy(key), "PySpark's Columns", type(key).__name__)
    refused(lambda: tr.sum(key), "a column's name or a Column")
    refused(lambda: tr.count(key), "a column's name or a Column")


# Windows


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ts", "10 seconds", "20 seconds"), ("slideDuration", "20 seconds", "10 seconds")),
        (("ts", "0 seconds"), ("windowDuration", "zero")),
        (("ts", "-1 second"), ("windowDuration", "negative")),
        (("ts", "1 second", "0 seconds"), ("slideDuration", "zero")),
        (("ts", "1 second", "x"), ("slideDuration", '"x"')),
        (("ts", "10 seconds", "2 seconds", "3 seconds"), ("startTime", "1 second")),
        (("ts", "1 month"), ("windowDuration", "days")),
        ((5, "1 second"), ("timeColumn",)),
    ],
)
def test_bad_windows(arguments, words):
    refused(lambda: window(*arguments), *words)


@pytest.mark.parametrize(("start", "offset"), [(None, 0), ("1 second", 1_000_000), ("-500 milliseconds", 1_500_000)])
def test_the_offset_is_normal(start, offset):
    assert window("ts", "10 seconds", "2 seconds", start).offset == offset


# Aggregates


@pytest.mark.parametrize(
    ("aggregate", "name"),
    [
        (tr.count(), "count(1)"),
        (tr.count("*"), "count(1)"),
        (tr.count("price"), "count(price)"),
        (tr.sum("price"), "sum(price)"),
        (tr.min("price"), "min(price)"),
        (tr.max("price"), "max(price)"),
        (tr.avg("price"), "avg(price)"),
        (tr.mean("price"), "avg(price)"),
        (tr.stddev("price"), "stddev(price)"),
        (tr.stddev_samp("price"), "stddev_samp(price)"),
        (tr.first("price"), "first(price)"),
        (tr.last("price", ignorenulls=True), "last(price)"),
        (tr.sum("price").alias("total"), "total"),
    ],
)
def test_names_are_sparks(aggregate, name):
    assert bids().withWatermark("ts", "1 second").agg(aggregate).columns == [name]


@pytest.mark.parametrize("function", [tr.sum, tr.avg, tr.stddev])
@pytest.mark.parametrize("column", ["channel", "open", "day", "ts", "raw", "tags", "person"])
def test_arithmetic_needs_numbers(function, column):
    refused(lambda: bids().agg(function(column)), column, TYPES[column], "cast")


@pytest.mark.parametrize("function", [tr.min, tr.max, tr.first, tr.last])
@pytest.mark.parametrize("column", ["tags", "extra", "person"])
def test_nested_values_cannot_be_kept(function, column):
    refused(lambda: bids().withWatermark("ts", "1 second").agg(function(column)), column, TYPES[column])


@pytest.mark.parametrize("column", ["tags", "person", "score", "channel"])
def test_anything_can_be_counted(column):
    assert bids().agg(tr.count(column)).columns == [f"count({column})"]


@pytest.mark.parametrize("function", [tr.first, tr.last])
def test_first_and_last_need_event_time(function):
    refused(lambda: bids().groupBy("auction").agg(function("price")), "event time", "withWatermark")
    assert bids().withWatermark("ts", "1 second").groupBy("auction").agg(function("price"))
    assert bids().groupBy(window("ts", "1 second")).agg(function("price"))


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.groupBy("auction", "Auction").count(),
        lambda s: s.groupBy("auction").agg(tr.count().alias("AUCTION")),
        lambda s: s.agg(tr.count(), tr.count()),
        lambda s: s.agg(tr.avg("price"), tr.mean("price")),
        lambda s: s.groupBy(window("ts", "1 second").alias("price"), "price").count(),
    ],
)
def test_output_names_are_unique(call):
    refused(lambda: call(bids()), "alias")


def test_shortcuts_of_pyspark():
    group = bids().groupBy("auction")
    assert group.sum("price", "cost").columns == ["auction", "sum(price)", "sum(cost)"]
    assert group.agg({"price": "max", "*": "count"}).columns == ["auction", "max(price)", "count(1)"]
    refused(lambda: group.agg({"price": "mode"}), "mode", "stddev")
    refused(lambda: group.max(), "max('price')")


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ((), "at least one"),
        ((tr.count,), "call it"),
        (("count",), "aggregates"),
        ((FakeColumn(),), "pyspark.sql.functions"),
    ],
)
def test_agg_takes_aggregates(given, word):
    refused(lambda: bids().agg(*given), word)


def test_steps_are_frozen():
    stream = bids()
    stream.withWatermark("ts", "1 second")
    assert stream.watermark is None
    with pytest.raises(AttributeError):
        stream.watermark = "x"


def test_explain_prints_a_plan(capsys):
    bids(RecordingRuntime()).groupBy("auction").count().explain()
    assert "RMW" in capsys.readouterr().out
