"""The oracle against plain Python on small, shuffled inputs, and on edges that were chosen by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.lab.nexmark_rows import bid_rows, house_rows
from support.lab.same_rows import RowsDiffer, same_rows
from support.models.nexmark import NAIVE, House
from tailrace.errors import TailraceError
from tailrace.lab.workloads.nexmark.answers import ANSWERS, closed
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.files import Format, write_files
from tailrace.lab.workloads.nexmark.events.generator import events
from tailrace.lab.workloads.nexmark.oracle import answer
from tailrace.lab.workloads.nexmark.params import Params

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, times as milliseconds."""
    as_integers = [
        pa.field(field.name, pa.int64()) if pa.types.is_timestamp(field.type) else field for field in table.schema
    ]
    rows: list[dict[str, Any]] = table.cast(pa.schema(as_integers)).to_pylist()
    return rows


def naive(query: str, table: pa.Table, params: Params) -> pa.Table:
    columns = ANSWERS[query].columns
    rows = NAIVE[query](House(plain_rows(table)), params)
    return pa.table({field.name: pa.array([row[field.name] for row in rows], field.type) for field in columns})


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))


def test_every_answer_has_a_naive_one() -> None:
    assert NAIVE.keys() == ANSWERS.keys()


CONFIGS = st.builds(
    Config,
    seed=st.integers(0, 2**32),
    first_event_rate=st.sampled_from([2, 20, 200]),
    next_event_rate=st.sampled_from([2, 20]),
    num_in_flight_auctions=st.sampled_from([1, 5, 50]),
    num_active_people=st.sampled_from([2, 10]),
    out_of_order_group_size=st.sampled_from([1, 10]),
    person_proportion=st.sampled_from([1, 5]),
    auction_proportion=st.sampled_from([3, 10]),
    bid_proportion=st.sampled_from([10, 46]),
    hot_bidders_ratio=st.sampled_from([1, 4]),
    base_time_ms=st.sampled_from([1_436_918_400_000, 1_436_918_400_000 - 30_000, 1_436_943_600_000]),
)
PARAMS = st.builds(
    lambda window, slide, **rest: Params(window_ms=window, slide_ms=min(slide, window), **rest),
    window=st.sampled_from([1, 999, 1_000, 10_000, 60_000]),
    slide=st.sampled_from([300, 500, 1_000, 5_000]),
    gap_ms=st.sampled_from([1, 5, 50, 500, 10_000]),
    auction_skip=st.sampled_from([1, 7, 123]),
    category=st.sampled_from([10, 14]),
    side_rows=st.sampled_from([1, 100, 10_000]),
    top=st.sampled_from([1, 3, 10]),
)


@pytest.mark.parametrize("query", list(ANSWERS))
@given(config=CONFIGS, params=PARAMS, start=st.integers(0, 300), size=st.integers(0, 400), seed=st.integers(0, 99))
@settings(max_examples=40 if LONG else 3)
def test_the_oracle_agrees_with_plain_python(
    query: str, config: Config, params: Params, start: int, size: int, seed: int
) -> None:
    table = shuffled(events(config, start, start + size), seed)
    same_rows(answer(query, table, params), naive(query, table, params))


PRICES = st.sampled_from([5, 6, 9_999, 10_000, 1_000_000, 2_000_000])
AUCTIONS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 4), st.sampled_from([10, 11]), PRICES),
    max_size=4,
)
BIDS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4), st.integers(1, 2), PRICES), min_size=10, max_size=50)


@pytest.mark.parametrize("query", list(ANSWERS))
@given(auctions=AUCTIONS, bids=BIDS, window=st.integers(1, 12), slide=st.integers(1, 12), gap=st.integers(1, 4))
@settings(max_examples=100 if LONG else 6)
def test_ties_and_edges(query: str, auctions: Any, bids: Any, window: int, slide: int, gap: int) -> None:
    """Few times, few prices, few ids: almost every row ties with another or lies on the edge of a window."""
    params = Params(window_ms=window, slide_ms=min(slide, window), gap_ms=gap, top=3)
    table = house_rows(auctions, bids)
    same_rows(answer(query, table, params), naive(query, table, params))


def test_a_session_ends_when_the_gap_has_passed() -> None:
    table = bid_rows((1_000, 1, 7, 10), (1_009, 1, 7, 30), (1_019, 1, 7, 20))
    rows = plain_rows(answer("q11", table, Params(gap_ms=10)))
    assert sorted((row["num"], row["window_start"], row["window_end"]) for row in rows) == [
        (1, 1_019, 1_029),
        (2, 1_000, 1_019),
    ]
    rows = plain_rows(answer("q11-median", table, Params(gap_ms=11)))
    assert [(row["price"], row["window_start"], row["window_end"]) for row in rows] == [(20.0, 1_000, 1_030)]


def test_files_and_tables_give_the_same_answers(tmp_path: Path) -> None:
    config = Config(seed=4)
    table = events(config, 0, 3_000)
    for format in Format:
        write_files(config, tmp_path / format, 3_000, 700, format=format)
        for query in ("q5", "q9", "q16"):
            same_rows(answer(query, tmp_path / format), answer(query, table))


def test_files_with_few_columns_are_enough_for_queries_about_them(tmp_path: Path) -> None:
    config = Config(seed=4)
    write_files(config, tmp_path, 3_000, 700, columns=["bid_auction", "bid_bidder", "bid_price"])
    same_rows(answer("q5", tmp_path), answer("q5", events(config, 0, 3_000)))


def test_closed_windows_are_those_that_end_by_the_watermark() -> None:
    rows = answer("q5", bid_rows((1_000, 1, 1, 1), (1_010, 1, 1, 1)), Params(window_ms=10, slide_ms=10))
    assert [closed(rows, watermark).num_rows for watermark in (1_009, 1_010, 1_019, 1_020)] == [0, 1, 1, 2]
    with pytest.raises(TailraceError, match="window_end"):
        closed(answer("q12", bid_rows((1_000, 1, 1, 1))), 0)


def test_different_rows_are_shown() -> None:
    a = pa.table({"x": [1, 2, 2], "y": ["a", "b", "b"]})
    same_rows(a, a.select(["y", "x"]).take([2, 0, 1]).cast(pa.schema({"y": pa.string(), "x": pa.int16()})))
    with pytest.raises(
        RowsDiffer, match=r"3 rows found, 2 expected\n1 found but not expected:\n  x=2, y=b\n0 expected"
    ):
        same_rows(a, a.slice(0, 2))
    with pytest.raises(RowsDiffer, match="columns differ"):
        same_rows(a, a.select(["x"]))
    with pytest.raises(RowsDiffer, match="1 expected but not found"):
        same_rows(pa.table({"x": [None, 1]}), pa.table({"x": [1, 1]}))
    same_rows(pa.table({"x": pa.array([None], pa.int64())}), pa.table({"x": pa.array([None], pa.int64())}))


def test_an_unknown_query_is_refused() -> None:
    with pytest.raises(TailraceError, match="q99"):
        answer("q99", events(Config(), 0, 10))
