"""What a user may ask of a join, and how everything else is refused: the message names what is wrong and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import tailrace as tr
from support.bids import RecordingRuntime
from tailrace.api.relations import Join, OutputMode, ValidTo, Within
from tailrace.api.stream import Stream
from tailrace.api.windows import Window, session_window, window
from tailrace.errors import AnalysisError
from tailrace.operators.join.spec import SPAN_MAX
from tailrace.types import DataType, Field

SECOND = 1_000_000
BOTH = ("auction", "site")
LEFT = {"auction": "bigint", "site": "string", "ts": "timestamp", "expires": "timestamp", "item": "string"}
RIGHT = {"auction": "bigint", "site": "string", "at": "timestamp", "price": "decimal(10,2)", "until": "timestamp"}


@dataclass
class TableRuntime(RecordingRuntime):
    """Its only static table has the columns ``site, country``."""

    def enriched(self, source: object, table: object, on: Any, how: Any) -> tuple[object, tuple[Field, ...]]:
        return ("enriched", source, table, tuple(on), how), (*fields(LEFT), Field("country", DataType("string")))


def fields(types: dict[str, str]) -> tuple[Field, ...]:
    return tuple(Field(name, DataType(type_)) for name, type_ in types.items())


def stream(types: dict[str, str], time: str | None = None, delay: str = "5 seconds") -> Stream:
    made = Stream("a DataFrame", fields(types), TableRuntime())
    return made if time is None else made.withWatermark(time, delay)


def auctions(**more: str) -> Stream:
    return stream({**LEFT, **more}, "ts")


def bids(**more: str) -> Stream:
    return stream({**RIGHT, **more}, "at", "1 minute")


def joined(on: Any = BOTH, **options: Any) -> Join:
    relation = auctions().join(bids(), on, **{"within": ("0 seconds", "1 minute"), **options}).source
    assert isinstance(relation, Join)
    return relation


def refused(*words: str, left: Stream | None = None, right: Any = None, on: Any = BOTH, **options: Any) -> None:
    with pytest.raises(AnalysisError) as caught:
        (left or auctions()).join(right or bids(), on, **options)
    for word in words:
        assert word in str(caught.value)


# What is understood


def test_the_output_is_the_keys_then_the_left_columns_then_the_right_ones():
    names = [field.name for field in joined(["SITE", "auction"], eventTime="seen").fields]
    assert names == ["site", "auction", "ts", "expires", "item", "at", "price", "until", "seen"]


def test_names_are_found_whatever_their_case():
    other = stream({"Auction": "bigint", "at": "timestamp", "UNTIL": "timestamp"}, "at")
    relation = auctions().join(other, "AUCTION", validTo="until").source
    assert [key.name for key in relation.left.keys] == ["auction"]
    assert [key.name for key in relation.right.keys] == ["Auction"]
    assert relation.condition == ValidTo("UNTIL", True)


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("inner", ["inner", "Inner"]),
        ("left_outer", ["left", "LEFT_OUTER", "leftouter", " left "]),
        ("right_outer", ["right", "right_outer", "RightOuter"]),
        ("full_outer", ["outer", "full", "full_outer", "fullouter"]),
        ("left_semi", ["semi", "left_semi", "leftsemi"]),
    ],
)
def test_ways_to_write_how(how, names):
    assert {joined(how=name).how for name in names} == {how}


def test_a_semi_join_gives_left_rows():
    """Columns of the right side are read where the condition needs them, and may have names of the left side's."""
    relation = joined(how="semi", within=None, validTo="until", eventTime="seen")
    assert [field.name for field in relation.fields] == [*LEFT, "seen"]
    assert [field.name for field in relation.right.columns] == ["until"]
    same = stream({**LEFT, "at": "timestamp"}, "at")
    semi = auctions().join(same, BOTH, "left_semi", within=("0 seconds", "1 minute")).source
    assert [field.name for field in semi.fields] == [*LEFT]
    refused("rename them", right=same, within=("0 seconds", "1 minute"))


@pytest.mark.parametrize(
    ("bounds", "meant"),
    [
        (("0 seconds", "1 minute"), Within(0, 60 * SECOND)),
        (["-5 seconds", None], Within(-5 * SECOND, None)),
        ((None, timedelta(seconds=2)), Within(None, 2 * SECOND)),
        (("1 second", "1 second"), Within(SECOND, SECOND)),
    ],
)
def test_bounds(bounds, meant):
    assert joined(within=bounds).condition == meant


def test_a_window_may_be_named_over_the_event_time_of_either_side():
    for time in ("ts", "AT"):
        relation = joined(within=None, window=window(time, "1 minute", "30 seconds").alias("w"))
        assert relation.condition == Window("ts", 60 * SECOND, 30 * SECOND, 0, "w")
        assert relation.fields[0] == Field("w", DataType("timestamp"))
        assert relation.event_time is not None and relation.event_time.column.name == "w"


@pytest.mark.parametrize(("column", "of_right"), [("expires", False), ("until", True)])
def test_the_end_of_validity_is_a_column_of_either_side(column, of_right):
    assert joined(within=None, validTo=column).condition == ValidTo(column, of_right)


def test_joined_rows_have_an_event_time_where_it_is_named():
    assert joined().event_time is None
    assert joined(eventTime="seen").event_time.column.name == "seen"


def test_a_join_by_keys_alone_needs_no_event_time():
    relation = stream(LEFT).join(stream(RIGHT), BOTH).source
    assert relation.condition is None and relation.ttl is None
    assert joined(within=None, ttl="1 hour").ttl == 3600 * SECOND


def test_what_may_follow_a_join():
    pairs = auctions().join(bids(), BOTH, within=("0 seconds", "1 minute"), eventTime="seen")
    counts = pairs.groupBy(window("seen", "1 minute"), "item").agg(tr.count())
    assert counts.source.refusal(OutputMode.APPEND) is None
    assert pairs.groupBy("item").agg(tr.max("price")).source.refusal(OutputMode.UPDATE) is None
    windows = auctions().join(bids(), BOTH, window=window("ts", "1 minute"))
    assert windows.groupBy("window").agg(tr.count()).source.window.lasts == 60 * SECOND
    pairs.explain()


def test_an_enriched_stream_goes_on_as_the_same_stream():
    enriched = auctions().join("the table", "site", "left")
    assert enriched.source == ("enriched", "a DataFrame", "the table", ("site",), "left")
    assert enriched.columns[-1] == "country" and enriched.watermark.column.name == "ts"
    assert enriched.join(bids(), BOTH, validTo="expires").source.left.source == enriched.source


# What is refused


@pytest.mark.parametrize("how", ["right_semi", "natural", "", None, 3])
def test_other_kinds_of_join(how):
    refused("one of 'inner', 'left_outer'", repr(how), how=how)


@pytest.mark.parametrize("on", [[], ()])
def test_no_column_to_join_on(on):
    refused("at least one column", ".join(other, 'auction')", on=on)


class FakeColumn:
    """Behaves like Spark's Column: compares to another, and has no truth."""

    def __eq__(self, other):
        return FakeColumn()

    def __bool__(self):
        raise ValueError("no truth in a column")

    def __iter__(self):
        raise TypeError("no rows in a column")


@pytest.mark.parametrize("on", [FakeColumn(), [FakeColumn()], ["auction", 3], None, {"auction"}])
def test_what_is_no_name_of_a_column(on):
    refused("on takes the name of a column", "a Column of such", on=on)


def test_columns_that_one_side_does_not_have():
    refused("in the right stream", "'item'", "The columns are: auction", on="item")
    refused("in the left stream", "'price'", on="price")
    refused("in the left stream", "'auctoin'", "Did you mean 'auction'?", on="auctoin")


def test_a_column_named_twice():
    refused("'auction' twice", "once is enough", on=["auction", "AUCTION"])


def test_keys_of_different_types():
    other = stream({"auction": "int", "at": "timestamp"}, "at")
    refused("'auction'", "bigint on the left", "int on the right", "cast one first", right=other, on="auction")


@pytest.mark.parametrize("type_", ["double", "array<int>", "map<string,int>", "string collate UNICODE_CI"])
def test_types_that_are_no_keys(type_):
    left, right = auctions(x=type_), bids(x=type_)
    refused("join: column 'x'", type_, on="x", left=left, right=right)


@pytest.mark.parametrize("type_", ["array<int>", "map<string,int>", "struct<a:int>"])
def test_types_that_cannot_be_kept(type_):
    refused("'x'", type_, "leave it out or cast it", right=bids(x=type_))


def test_names_that_both_have():
    refused("both sides have site", "rename", "withColumnRenamed", on="auction")
    refused("both sides have ITEM", right=bids(ITEM="string"))


@pytest.mark.parametrize("name", ["__side", "__TIME"])
def test_names_that_are_taken(name):
    refused(repr(name), "rename it", right=bids(**{name: "int"}))


@pytest.mark.parametrize(
    "two",
    [
        {"within": (None, "1 second"), "validTo": "expires"},
        {"within": (None, "1 second"), "window": window("ts", "1 second")},
        {"validTo": "until", "window": window("ts", "1 second")},
    ],
)
def test_two_conditions_in_time(two):
    refused("one condition in time", *two, "keep one", **two)


@pytest.mark.parametrize(
    "needing",
    [
        {"within": (None, "1 second")},
        {"window": window("ts", "1 second")},
        {"validTo": "until"},
        {"ttl": "1 second"},
        {"eventTime": "seen"},
    ],
)
def test_event_time_is_needed(needing):
    sides = {"left": stream(LEFT), "right": stream(RIGHT)}
    refused(*needing, "needs the event time of both", ".withWatermark('ts', '10 seconds') on each", **sides, **needing)


def test_a_watermark_on_one_side():
    refused("only the left stream has a watermark", ".withWatermark on the other", right=stream(RIGHT))
    refused("only the right stream has a watermark", left=stream(LEFT))


def test_event_times_of_different_types():
    other = stream({**RIGHT, "at": "timestamp_ntz"}, "at")
    refused("'ts' is a timestamp and 'at' a timestamp_ntz", "cast one", right=other)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ("1 minute", ["a pair (lower, upper)", "for example"]),
        (("1 minute",), ["a pair (lower, upper)"]),
        ((None, None), ["no bound at all", "leave it out"]),
        (("2 seconds", "1 second"), ["lower bound above the upper one", "swap them"]),
        (("soon", None), ["within, lower bound", "for example"]),
        ((None, 5), ["within, upper bound", "for example"]),
        ((None, "40000000 days"), ["within, upper bound is too long", "leave it out"]),
    ],
)
def test_bad_bounds(bounds, words):
    refused(*words, within=bounds)


def test_the_longest_span_is_that_of_the_servers():
    span = f"{SPAN_MAX} microseconds"
    assert joined(within=(None, span)).condition == Within(None, SPAN_MAX)
    refused("ttl is too long", ttl=f"{SPAN_MAX + 1} microseconds")


@pytest.mark.parametrize("ttl", ["-1 second", "soon", 5, ""])
def test_a_bad_ttl(ttl):
    refused("join: ttl", "for example", ttl=ttl)


@pytest.mark.parametrize("given", ["1 minute", session_window("ts", "1 minute")])
def test_what_is_no_window(given):
    refused("tailrace.window('ts', '10 seconds')", "within=(lower, upper)", window=given)


def test_a_window_over_another_column():
    refused("over 'expires'", "event time is ts and at", "name one", window=window("expires", "1 hour"))


def test_what_a_window_makes_needless():
    both = {"window": window("ts", "1 hour")}
    refused("column 'window' is the event time", "remove eventTime", eventTime="seen", **both)
    refused("until their last window ends", "remove ttl", ttl="1 hour", **both)


@pytest.mark.parametrize("name", ["", 5])
def test_a_bad_name_of_the_event_time(name):
    refused("eventTime", "eventTime='at'", within=(None, "1 hour"), eventTime=name)


def test_a_name_of_the_event_time_that_is_taken():
    refused("'price'", "two output columns", within=(None, "1 hour"), eventTime="price")


def test_ends_of_validity_that_are_none():
    refused("no column 'expiress'", "Did you mean 'expires'?", validTo="expiress")
    refused("'price' is a decimal(10,2)", "cast one", validTo="price")
    refused("'ends' is a timestamp_ntz", "cast one", validTo="ends", right=bids(ends="timestamp_ntz"))
    refused("'ts' is the event time itself", "name the column", validTo="ts")


@pytest.mark.parametrize("endless", [{}, {"within": ("0 seconds", None)}])
def test_a_left_outer_join_that_would_wait_for_ever(endless):
    refused("at any time", "needs", "ttl", "how='inner'", how="left", **endless)
    assert joined(how="left", ttl="1 hour", **{"within": None, **endless}).how == "left_outer"


def test_other_outer_joins_that_would_wait_for_ever():
    refused("a right row", "a lower bound in within", how="right", within=(None, "1 hour"))
    refused("a left row", "'full_outer'", how="full", within=("1 hour", None))
    assert joined(how="right", within=("1 hour", None)).how == "right_outer"
    assert joined(how="semi", within=(None, "1 hour")).how == "left_semi"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("left_anti", ["no left anti join", "left_outer", "are null"]),
        ("anti", ["left_outer"]),
        ("cross", ["kept for ever"]),
    ],
)
def test_joins_that_are_refused_with_advice(how, words):
    refused("not supported for two streams", *words, how=how)


@pytest.mark.parametrize("side", ["left", "right"])
def test_windows_that_operators_have_made_are_no_column_of_a_joined_row(side):
    made = auctions().groupBy(window("ts", "1 minute"), "auction").agg(tr.count())
    refused("'window' is a struct", "withColumn", "F.window_time('window')", **{side: made})


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_that_operators_change_are_not_joined(side):
    refused("rows that are final", "append", **{side: auctions().groupBy("auction", "site").agg(tr.count())})


def test_a_time_to_live_of_either_side_belongs_to_the_join():
    refused("join(..., ttl='1 hour')", left=auctions().withStateTtl("1 hour"))
    refused("join(..., ttl='1 hour')", right=bids().withStateTtl("1 hour"))


@pytest.mark.parametrize(
    "given",
    [
        {"within": (None, "1 second")},
        {"window": window("ts", "1 second")},
        {"validTo": "expires"},
        {"ttl": "1 hour"},
        {"eventTime": "seen"},
    ],
)
def test_a_table_has_no_event_time(given):
    refused(*given, "are for two streams", "tailrace.stream(...)", right="the table", on="site", **given)


def test_a_table_does_not_join_what_operators_made():
    made = auctions().groupBy(window("ts", "1 minute"), "site").agg(tr.count())
    refused("right after tailrace.stream", "foreachBatch", left=made, right="the table", on="site")


def test_a_join_gives_no_updates():
    assert "outputMode('append')" in joined().refusal(OutputMode.UPDATE)


def test_windows_behind_a_join_without_event_time_say_where_it_is_named():
    pairs = auctions().join(bids(), BOTH, within=("0 seconds", "1 minute"))
    reason = pairs.groupBy(window("ts", "1 minute")).agg(tr.count()).source.refusal(OutputMode.APPEND)
    assert "eventTime='at'" in reason and "withWatermark('ts'" not in reason
    with pytest.raises(AnalysisError, match="eventTime='at'"):
        pairs.withWatermark("ts", "1 second")
