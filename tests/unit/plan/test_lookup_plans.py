"""Lookup tables in the plan: what is read, what is narrowed, what a restart may change, what explain says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import tailrace as tr
from support.bids import RecordingRuntime, bids
from tailrace.api import tables
from tailrace.api.duration import format_duration
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode
from tailrace.api.tables import LookupTable
from tailrace.api.windows import window
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import PhysicalPlan, plan_relation
from tailrace.types import DataType, Field

PASSWORD = "pw-9876"
URL = f"redis://:{PASSWORD}@host:7000/2"


class TableRuntime(RecordingRuntime):
    def table_fields(self, table: LookupTable) -> tuple[Field, ...]:
        words = [part.split() for part in str(table.schema).split(",")]
        return tuple(Field(name, DataType(type_)) for name, type_ in words)


def stream(*columns: str, delay: str | None = "5 seconds") -> Any:
    complete = bids(TableRuntime())
    own = replace(complete, schema=tuple(field for field in complete.schema if field.name in columns))
    return own if delay is None else own.withWatermark("ts", delay)


def redis(schema: str = "campaign string, budget int", **how: Any) -> LookupTable:
    return tables.redis(how.pop("url", URL), "auction", schema, **how)


def planned(made: Any, **options: Any) -> PhysicalPlan:
    return plan_relation(made.source, OutputMode.APPEND, Options(**options))


def test_a_row_has_keys_then_its_own_columns_then_the_tables() -> None:
    made = stream("ts", "auction", "price").join(redis(), "AUCTION", "left")
    assert made.columns == ["auction", "ts", "price", "campaign", "budget"]
    assert made.watermark is not None and made.watermark.column.name == "ts"
    plan = planned(made)
    spec = plan.operator
    assert isinstance(spec, LookupSpec) and spec.outer and not spec.watermarked
    assert [field.name for field in plan.inputs[0].columns] == ["ts", "auction", "price"]
    assert plan.delays == (5_000_000,)


def test_only_what_the_next_operator_reads_is_read_and_asked_for() -> None:
    met = stream("ts", "auction", "price", "channel").join(redis(), "auction")
    counted = met.groupBy(window("ts", "10 seconds"), "campaign").agg(tr.count())
    first, second = (stage.operator for stage in planned(counted).stages)
    assert isinstance(first, LookupSpec)
    assert [field.name for field in (*first.rows, *first.values)] == ["ts", "campaign"]
    assert first.fields == ("campaign", "budget"), "how the table is read does not depend on what is wanted"
    assert second.watermarked and planned(counted).stages[1].lag == 0


def test_duplicates_behind_a_table_are_late_as_without_it() -> None:
    for made, handed_over in (
        (stream("ts", "auction").join(redis(), "auction").dropDuplicates(["auction", "ts"]), False),
        (stream("ts", "auction").dropDuplicates(["auction", "ts"]).join(redis(), "auction").dropDuplicates(), True),
    ):
        last = planned(made).last
        assert isinstance(last, DeduplicateSpec) and last.handed_over is handed_over


def test_the_table_may_move_and_the_columns_may_not_change() -> None:
    def stored(table: LookupTable, how: str = "inner", **options: Any) -> Any:
        made = stream("ts", "auction").join(table, "auction", how)
        return json.loads(json.dumps(fingerprint(planned(made, **options))))

    before = stored(redis())
    assert PASSWORD not in json.dumps(before)
    moved = tables.redis("rediss://other/1", "auction", "campaign string, budget int", retry="1 hour", prefix="x")
    assert differences(before, stored(moved)) == []
    assert differences(before, stored(redis(), "left_outer")) == ["join: was inner, is now left outer"]
    assert "columns of the table: was campaign string, budget int, is now campaign string" in differences(
        before, stored(redis("campaign string"))
    )


def test_explain_tells_the_table_and_no_secret() -> None:
    text = explain(planned(stream("ts", "auction").join(redis(onConnectionLoss="fail"), "auction")))
    assert "Lookup join" in text and "asks Redis host:7000/2 for each auction bigint" in text
    assert "rows that it does not have are left out" in text and "a lost connection is an error at once" in text
    assert "store none" in text and "call of your function" not in text
    assert PASSWORD not in text
    text = explain(planned(stream("ts", "auction", delay=None).join(redis(retry="2 minutes"), "auction", "left")))
    assert "are given nulls" in text and "waited for, at most 2 minutes" in text


def test_copies_have_a_largest_age_which_explain_tells() -> None:
    """A minute where nobody says; and none for files, which are read once."""
    for table, micros in (
        (redis(), 60_000_000),
        (redis(maxAge="5 seconds"), 5_000_000),
        (redis(maxAge=None), None),
        (tables.sqlite("/t.db", "t", "auction", "budget int"), 60_000_000),
        (tables.dbapi(print, "in ({keys})", "auction", "budget int"), 60_000_000),
        (tables.dbapi(print, "in ({keys})", "auction", "budget int", maxAge="1 hour"), 3_600_000_000),
        (replace(tables.parquet("/t", "auction"), schema="budget int"), None),
    ):
        plan = planned(stream("ts", "auction").join(table, "auction"))
        assert isinstance(plan.operator, LookupSpec) and plan.operator.table.max_age == micros
        said = f"a copy of what it says is used for at most {format_duration(Micros(micros or 0))}"
        assert (said in explain(plan)) == (micros is not None)


def test_too_many_columns_are_refused() -> None:
    many = ", ".join(f"c{n} int" for n in range(80))
    with pytest.raises(AnalysisError, match="at most"):
        planned(stream("ts", "auction").join(redis(many), "auction"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tables.redis("redis://h", "k", "v int", layout="list"), "layout must be"),
        (lambda: tables.redis("redis://h", [], "v int"), "key names the key column"),
        (lambda: tables.redis("redis://h", "k", "v int", onConnectionLoss="retry"), "must be 'wait'"),
        (lambda: tables.redis("redis://h", "k", "v int", retry="soon"), "retry"),
        (lambda: tables.redis(b"redis://h", "k", "v int"), "is a bytes"),  # type: ignore[arg-type]
        (lambda: tables.parquet("", "k"), "path must be"),
        (lambda: tables.parquet("/t", "k", columns="v"), "takes a list of names"),
        (lambda: tables.dbapi("dsn", "select {keys}", "k", "v int"), "connect must be a function"),  # type: ignore[arg-type]
        (lambda: tables.dbapi(print, "select 1", "k", "v int"), r"must have \{keys\} once"),
        (lambda: tables.dbapi(print, "in ({keys})", "k", "v int", paramstyle="dollar"), "paramstyle"),
        (lambda: tables.dbapi(print, "in ({keys})", "k", "v int", batch=0), "batch must be"),
    ],
)
def test_what_a_table_cannot_be_is_said(make: Any, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        make()


def test_a_path_is_shown_without_what_may_be_secret() -> None:
    assert tables.parquet("s3://me:pw-1@bucket/a/b?secret_key=pw-2", "k").shown == "Parquet s3://bucket/a/b"
    assert tables.parquet("/data/x@y", "k").shown == "Parquet /data/x@y"
