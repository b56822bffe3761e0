"""Work without state that is said of a stream: before its first operator, without Spark. A DataFrame is its columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import tailrace as tr
from support.bids import SCHEMA, RecordingRuntime
from tailrace.api.columns import shown_call
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.types import Field


@dataclass(frozen=True)
class Rows:
    fields: tuple[Field, ...]
    calls: tuple[str, ...] = ()

    def select(self, *names: str) -> Rows:
        return replace(self, fields=tuple(each for each in self.fields if each.name in names))

    def where(self, condition: str) -> Rows:
        return replace(self, calls=(*self.calls, condition))

    def withColumnRenamed(self, old: str, new: str) -> Rows:
        fields = (Field(new, each.type) if each.name == old else each for each in self.fields)
        return replace(self, fields=tuple(fields))

    def union(self, other: Rows) -> Rows:
        return replace(self, calls=(*self.calls, "union", *other.calls))


class RowsRuntime(RecordingRuntime):
    def transformed(
        self, source: Any, function: Callable[..., Any], time: str | None, label: str
    ) -> tuple[object, tuple[Field, ...], str | None]:
        made, place = function(source), [each.name for each in source.fields].index(time) if time else 0
        renamed = len(made.fields) == len(source.fields)
        return made, made.fields, made.fields[place].name if renamed else time

    def rows(self, source: object) -> object:
        return source


def rows() -> Stream:
    return Stream(Rows(SCHEMA), SCHEMA, RowsRuntime())


def test_a_watermark_goes_along_with_its_column() -> None:
    stream = rows().withWatermark("ts", "1 second").where("price > 1").withColumnRenamed("ts", "at")
    assert stream.watermark is not None and stream.watermark.column == Field("at", SCHEMA[0].type)
    assert stream.groupBy(tr.window("at", "1 hour")).count().columns == ["window", "count"]
    with pytest.raises(AnalysisError, match=r"select\(price\): the watermark is on 'at'"):
        stream.select("price")


def test_unions_have_one_watermark() -> None:
    plain, marked = rows(), rows().withWatermark("ts", "1 second")
    assert plain.where("a").union(plain.where("b")).source.calls == ("a", "union", "b")  # type: ignore[attr-defined]
    assert marked.union(marked).watermark == marked.watermark
    for other in (plain, rows().withWatermark("ts", "2 seconds"), rows().withWatermark("ntz", "1 second")):
        with pytest.raises(AnalysisError, match="watermarks of both sides differ"):
            marked.union(other)
    with pytest.raises(AnalysisError, match="takes another stream, but got a str"):
        plain.union("rows")  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="what an operator has made"):
        plain.union(plain.groupBy("auction").count())


def test_calls_are_shown_as_they_were_written() -> None:
    assert shown_call("select", ["a", "Column<'lower(b)'>"]) == "select(a, lower(b))"
    assert len(shown_call("where", ["x" * 1000])) < 200
