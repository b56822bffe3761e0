"""Numbering rows against a dictionary: in and out of memory, undone, moved, restarted; and what a user may ask for."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.bids import bids
from support.operators.row_cluster import RowCluster
from support.operators.scenario import Scenario, play
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode
from tailrace.errors import AnalysisError
from tailrace.operators.row_number import row_number
from tailrace.operators.row_number.spec import RowNumberSpec
from tailrace.plan.explain import explain
from tailrace.plan.physical import plan_relation
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
NO_TIME = -(2**63)
TYPES = {"k": DataType("string"), "n": DataType("decimal(30,2)"), "ts": TIMESTAMP, "note": DataType("binary")}
NAMES = list(TYPES)


class Numbers(Scenario):
    sizes = (0, 1, 10, 40)

    def __init__(self, cluster: RowCluster, rng: random.Random) -> None:
        super().__init__(cluster)
        self.rng, self.counts = rng, Counter[Any]()

    def given(self, epoch: int, count: int) -> tuple[Any, ...]:
        rows = [self._row() for _ in range(count)]
        cut = self.rng.randrange(len(rows) + 1)
        return [rows[:cut], rows[cut:]], NO_TIME, NO_TIME

    def _row(self) -> Any:
        rng = self.rng
        time = rng.choice([None, *range(-3, 4)])
        return (
            rng.choice(["", "a", "ü", None]),
            rng.choice([None, Decimal("1.00")]),
            time,
            rng.choice([None, b"", b"note"]),
        )

    def saved(self) -> Any:
        return Counter(self.counts)

    def rewind_to(self, saved: Any) -> None:
        self.counts = Counter(saved)

    def check(self, epoch: int, given: tuple[Any, ...], found: list[Any]) -> None:
        spec = self.cluster.spec
        rows = [row for part in given[0] for row in part]
        if spec.time_column is not None:
            rows.sort(key=lambda row: (row[2] is None, row[2] or 0))
        places = [NAMES.index(key.name) for key in spec.keys]
        wanted = []
        for row in rows:
            key = tuple(row[place] for place in places)
            self.counts[key] += 1
            if spec.limit is None or self.counts[key] <= spec.limit:
                wanted.append((*row, self.counts[key]))
        assert Counter(map(repr, found)) == Counter(map(repr, wanted)), f"epoch {epoch}"
        assert self.cluster.rows == len(self.counts)


@given(seed=st.integers(0, 2**48))
@settings(max_examples=300 if LONG else 25)
def test_rows_are_numbered(seed: int) -> None:
    rng = random.Random(seed)
    columns = tuple(Field(name, type_) for name, type_ in TYPES.items())
    spec = RowNumberSpec(
        name="r",
        keys=tuple(rng.sample(columns[:2], rng.randint(1, 2))),
        columns=columns,
        time_column=rng.choice([None, columns[2]]),
        number="number",
        limit=rng.choice([None, 1, 5]),
        shards=rng.choice([1, 3]),
    )
    with tempfile.TemporaryDirectory() as folder:
        cluster = RowCluster(spec, TYPES, rng, folder, rng.choice([None, 1, 50]))
        play(Numbers(cluster, rng), rng, 10, failing=0.15, restarting=0.12)


def test_a_plan_says_what_is_numbered() -> None:
    numbered = bids().withWatermark("ts", "10 seconds").pipe(row_number, "auction", limit=3)
    assert numbered.columns[-1] == "row_number" and numbered.watermark is not None
    text = explain(plan_relation(numbered.source, OutputMode.APPEND, Options()))  # type: ignore[arg-type]
    assert "numbers the rows of each auction bigint, in column row_number; gives the first 3 rows of each" in text
    assert "one record a key" in text and "combine off: the operator needs every row as it is" in text
    chained = numbered.groupBy("row_number").count()
    first, second = plan_relation(chained.source, OutputMode.UPDATE, Options()).stages  # type: ignore[arg-type]
    assert [field.name for field in first.operator.emits] == ["ts", "auction", "row_number"]
    assert second.operator.keys == (Field("row_number", BIGINT),)


@pytest.mark.parametrize(
    ("cols", "given_", "match"),
    [((), {}, "needs the columns"), (("auction",), {"limit": 0}, "from 1 on"), (("nothing",), {}, "nothing")],
)
def test_what_cannot_be_numbered(cols: Any, given_: Any, match: str) -> None:
    with pytest.raises(AnalysisError, match=match):
        bids().pipe(row_number, *cols, **given_)
    with pytest.raises(AnalysisError, match="must give a stream"):
        bids().pipe(lambda stream: stream.schema)
