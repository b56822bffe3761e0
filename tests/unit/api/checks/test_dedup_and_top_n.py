"""What a user may ask of ``dropDuplicates`` and ``topN``, and how all else is refused: what is wrong, what to do."""

from __future__ import annotations

from typing import Any

import pytest

import tailrace as tr
from support.bids import RecordingRuntime
from tailrace.api.relations import Deduplication, OutputMode, Ranking
from tailrace.api.stream import Stream
from tailrace.api.windows import count_window, custom_window, session_window, window
from tailrace.errors import AnalysisError
from tailrace.types import DataType, Field

SECOND = 1_000_000
TYPES = {"auction": "bigint", "ts": "timestamp", "price": "int", "score": "double", "note": "string"}


def stream(delay: str | None = "5 seconds", **more: str) -> Stream:
    fields = tuple(Field(name, DataType(type_)) for name, type_ in {**TYPES, **more}.items())
    made = Stream("a DataFrame", fields, RecordingRuntime())
    return made if delay is None else made.withWatermark("ts", delay)


def counts() -> Stream:
    return stream().groupBy(window("ts", "10 seconds"), "auction").agg(tr.count().alias("n"))


def names(fields: tuple[Field, ...]) -> list[str]:
    return [field.name for field in fields]


def refused(make: Any, *words: str) -> None:
    with pytest.raises(AnalysisError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


# Duplicates ----------------------------------------------------------------------------------------------------------


def test_rows_keep_their_columns_and_their_event_time() -> None:
    made = stream().dropDuplicates(["AUCTION", "note", "auction"])
    assert made.columns == list(TYPES)
    assert isinstance(made.source, Deduplication)
    assert names(made.source.keys) == ["auction", "note"]
    assert made.watermark == stream().watermark
    assert stream(None).dropDuplicates("auction").watermark is None
    assert stream().drop_duplicates(["auction"]).source == stream().dropDuplicates("auction").source


def test_without_a_subset_all_columns_are_compared() -> None:
    made = stream(score="decimal(10,2)").dropDuplicates().source
    assert isinstance(made, Deduplication) and names(made.keys) == list(TYPES)


def test_rows_without_duplicates_go_on_as_streams_do() -> None:
    distinct = stream().dropDuplicatesWithinWatermark(["auction"])
    again = distinct.groupBy(window("ts", "10 seconds")).agg(tr.count())
    assert again.source.refusal(OutputMode.APPEND) is None
    twice = distinct.dropDuplicates(["note"]).source
    assert isinstance(twice, Deduplication) and twice.watermark is not None and twice.watermark.delay == 5 * SECOND


def test_the_delay_is_what_the_streams_were_given_however_many_operators_ago() -> None:
    other = Stream(
        "another", (Field("auction", DataType("bigint")), Field("at", DataType("timestamp"))), stream().runtime
    )
    pairs = stream().join(
        other.withWatermark("at", "1 minute"), "auction", within=("0 seconds", "1 second"), eventTime="t"
    )
    joined = pairs.dropDuplicatesWithinWatermark(["auction"]).source
    assert joined.watermark.delay == 60 * SECOND
    counted = stream().groupBy(count_window(3, eventTime="t"), "auction").agg(tr.count().alias("n"))
    assert counted.dropDuplicatesWithinWatermark(["auction"]).source.watermark.delay == 5 * SECOND


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: stream().dropDuplicates(["bidder"]), ("dropDuplicates: there is no column 'bidder'",)),
        (lambda: stream().dropDuplicates([]), ("at least one column", "['id']")),
        (lambda: stream().dropDuplicates(5), ("takes a list of column names", "5 (int)")),
        (lambda: stream().dropDuplicates([5]), ("takes column names", "5 (int)")),
        (lambda: stream().dropDuplicates(["score"]), ("'score' is a double", "cannot be compared", "decimal")),
        (lambda: stream().dropDuplicates(), ("'score' is a double", "name the columns that are, as in ['id']")),
        (lambda: stream(tags="array<int>").dropDuplicates(["auction"]), ("'tags' is a array<int>", "to_json")),
        (lambda: stream(None).dropDuplicatesWithinWatermark(), ("no watermark", "withWatermark", "never forgets")),
        (lambda: counts().dropDuplicates(["auction"]), ("come with a window, 'window'", "before you group")),
        (lambda: stream().groupBy("auction").count().dropDuplicates(), ("deduplicated once its rows are final",)),
    ],
)
def test_what_cannot_be_compared_is_refused(make: Any, words: tuple[str, ...]) -> None:
    refused(make, *words)


def test_rows_without_duplicates_are_never_updated() -> None:
    relation = stream().dropDuplicates(["auction"]).source
    assert relation.refusal(OutputMode.APPEND) is None
    assert "use .outputMode('append')" in relation.refusal(OutputMode.UPDATE)


# The best rows -------------------------------------------------------------------------------------------------------


def test_the_output_is_keys_columns_and_rank() -> None:
    made = stream().groupBy("auction").topN(3, "PRICE")
    assert made.columns == ["auction", "ts", "price", "score", "note", "rank"]
    assert isinstance(made.source, Ranking) and made.source.order == (("price", False),)
    assert made.schema[-1].type.name == "int"
    made = (
        stream()
        .groupBy(window("ts", "10 seconds"), "auction")
        .topN(3, ["score", "price"], [True, False], ["note"], "p")
    )
    assert made.columns == ["window", "auction", "note", "p"]
    assert made.source.order == (("score", True), ("price", False))
    assert stream().groupBy().topN(1, "price").columns == [*TYPES, "rank"]


def test_windows_that_rows_bring_are_grouped_by_and_not_kept() -> None:
    best = counts().groupBy("window").topN(2, "n")
    assert best.columns == ["window", "auction", "n", "rank"]
    assert best.source.refusal(OutputMode.APPEND) is None
    assert counts().groupBy("auction").topN(2, "n").columns == ["auction", "n", "rank"]
    assert best.groupBy("window").agg(tr.sum("n")).columns == ["window", "sum(n)"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, "price"), ("whole number from 1", "0")),
        ((True, "price"), ("whole number", "True")),
        (("3", "price"), ("whole number", "'3'")),
        ((3, "bidder"), ("orderBy: there is no column 'bidder'",)),
        ((3, []), ("orderBy takes a column's name",)),
        ((3, 5), ("orderBy takes a column's name", "5")),
        ((3, "auction"), ("'auction' is a group column", "remove it")),
        ((3, "price", 1), ("ascending takes True or False", "1")),
        ((3, ["price", "score"], [True]), ("each of the 2 columns",)),
        ((3, "price", False, ["auction"]), ("'auction' is a group column", "remove it from columns")),
        ((3, "price", False, []), ("columns takes a column's name",)),
        ((3, "price", False, None, ""), ("rank takes the name",)),
        ((3, "tags"), ("'tags' is a array<int>", "cannot be kept")),
        ((3, "price"), ("'tags' is a array<int>", "columns=[...]")),
        ((3, "price", False, ["price"], "Price"), ("two output columns would be called 'Price'",)),
    ],
)
def test_what_cannot_be_ranked_is_refused(arguments: tuple[Any, ...], words: tuple[str, ...]) -> None:
    refused(lambda: stream(tags="array<int>").groupBy("auction").topN(*arguments), *words)


def test_windows_that_end_key_by_key() -> None:
    for each in (session_window("ts", "10 seconds"), count_window(5, 2), custom_window("ts", lambda times: times)):
        made = stream().groupBy("auction", each.alias("w")).topN(3, "price", columns=["note"])
        assert made.columns == ["auction", "w", "note", "rank"]
        assert made.source.refusal(OutputMode.APPEND) is None
    unclosed = stream(None).groupBy(session_window("ts", "10 seconds")).topN(3, "price").source
    assert "and a watermark" in unclosed.refusal(OutputMode.APPEND)
    assert stream(None).groupBy(count_window(5)).topN(3, "price").source.refusal(OutputMode.APPEND) is None
    first = stream().groupBy(session_window("ts", "1 minute"), "auction").topN(1, "price")
    assert first.groupBy(window("session_window", "1 hour")).count().columns == ["window", "count"]


def test_the_best_of_so_many_rows_have_the_event_time_of_their_window() -> None:
    best = stream().groupBy("auction", count_window(5, eventTime="at")).topN(2, "price", columns=["note"])
    assert best.columns == ["auction", "window", "note", "rank", "at"]
    assert best.watermark is not None and (best.watermark.column.name, best.watermark.delay) == ("at", 0)
    assert best.groupBy(window("at", "1 hour")).count().columns == ["window", "count"]
    assert stream().groupBy(count_window(5)).topN(2, "price").watermark is None
    timed, untimed = count_window(5, eventTime="note"), stream(None)
    refused(lambda: stream().groupBy(timed).topN(2, "price"), "two output columns would be called 'note'")
    refused(lambda: untimed.groupBy(timed).topN(2, "price"), "eventTime", "withWatermark")


def test_windows_whose_best_rows_cannot_be_given() -> None:
    each = stream().groupBy(session_window("ts", "1 second")).store("RMW")
    refused(lambda: each.topN(2, "price"), "topN keeps its rows in AUR")
    refused(lambda: counts().groupBy("auction").topN(2, "window"), "is the window that rows come from", "group by it")
    refused(lambda: stream().groupBy("auction").store("AUR").topN(2, "price"), "topN keeps its rows in RMW")


def test_append_needs_windows_that_close() -> None:
    ever = stream().groupBy("auction").topN(3, "price").source
    assert "needs a window" in ever.refusal(OutputMode.APPEND)
    assert ever.refusal(OutputMode.UPDATE) is None
    unclosed = stream(None).groupBy(window("ts", "10 seconds")).topN(3, "price")
    assert "and a watermark" in unclosed.source.refusal(OutputMode.APPEND)
    refused(lambda: unclosed.groupBy("window"), "once its rows are final")
