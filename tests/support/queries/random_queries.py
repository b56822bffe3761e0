"""Random streaming queries: a question, its batches, and how to run it. One seed fills the tables.

Hypothesis draws the shape (which columns, which windows, how late), the seed draws the values: a table of some hundred
rows would be far too much to draw, and to shrink, value by value.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from support import random_columns as values
from tailrace.testing import Aggregate, Question, Windows

SECOND = 1_000_000
BASES = (0, 1_700_000_000 * SECOND, -2_208_988_800 * SECOND, -3 * SECOND, 200_000_000_000 * SECOND)
"""Where event time begins: 1970, now, 1900, just before 1970, year 8307."""


@dataclass(frozen=True, repr=False)
class Case:
    question: Question
    schema: pa.Schema
    batches: tuple[pa.Table, ...]
    options: dict[str, str]
    files_per_epoch: int
    seed: int

    def __repr__(self) -> str:
        rows = [batch.num_rows for batch in self.batches]
        columns = ", ".join(f"{f.name} {f.type}" for f in self.schema)
        questions = f"{self.question.output_mode}, {self.question.windows}, delay={self.question.delay}"
        how = f"{self.options}, files_per_epoch={self.files_per_epoch}"
        return f"Case(seed={self.seed}, {questions}, {how}, rows={rows}, columns=({columns}))"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print every table

    @property
    def group(self) -> tuple[str, ...]:
        return (*(("window",) if self.question.windows else ()), *self.question.keys)

    @property
    def scales(self) -> dict[str, float]:
        """For each aggregate that may round, the size of what went in."""
        table = pa.concat_tables(self.batches)
        return {
            a.name: values.largest_magnitude(table[a.column])
            for a in self.question.aggregates
            if a.column is not None and a.function in ("sum", "avg", "stddev")
        }


def aggregates_for(column: str, type_name: str) -> list[Aggregate]:
    """Every aggregate that may run over any values of this type. Sums have columns of their own: see ``summable``."""
    made = [Aggregate(f, column, f"{f}_{column}") for f in ("count", "min", "max", "first", "last")]
    made += [Aggregate(f, column, f"{f}_some_{column}", ignore_nulls=True) for f in ("first", "last")]
    return made


def sums_for(column: str) -> list[Aggregate]:
    return [Aggregate(f, column, f"{f}_{column}") for f in ("sum", "avg", "stddev")]


def holistic_for(column: str, type_name: str, rng: random.Random) -> list[Aggregate]:
    """Every aggregate that needs all rows of a group."""
    made = [Aggregate(f, column, f"{f}_{column}") for f in ("count_distinct", "collect_list")]
    made.append(Aggregate("top_k", column, f"top_{column}", argument=rng.choice([1, 3, 100])))
    if type_name in values.NUMBERS:
        share = rng.choice([0.0, 0.25, 0.5, 0.9, 1.0])
        made.append(Aggregate("quantile", column, f"quantile_{column}", argument=share))
    return made


def value_columns(type_names: Iterable[str]) -> tuple[dict[str, tuple[str, bool]], list[Aggregate]]:
    """Columns (name -> type, whether to draw what can be summed) and all aggregates over them."""
    columns: dict[str, tuple[str, bool]] = {}
    aggregates: list[Aggregate] = [Aggregate("count", None, "rows")]
    for name in type_names:
        plain = f"v_{name}".replace("(", "_").replace(",", "_").replace(")", "")
        columns[plain] = (name, False)
        aggregates += aggregates_for(plain, name)
        if name in values.NUMBERS:
            columns[plain + "_s"] = (name, True)
            aggregates += sums_for(plain + "_s")
    return columns, aggregates


@dataclass(frozen=True)
class Timing:
    """How event time moves: ``step`` a batch, rows ``spread`` around it, some far behind, some without a time."""

    base: int
    step: int
    spread: int
    far: int
    null_share: float


def make_batches(
    rng: random.Random,
    keys: dict[str, values.Pool],
    columns: dict[str, tuple[str, bool]],
    timing: Timing,
    sizes: Iterable[int],
    *,
    ntz: bool = False,
) -> tuple[pa.Schema, tuple[pa.Table, ...]]:
    """A schema of keys, event time ``ts`` and value columns, and one table for each size."""
    fields = [(name, values.ARROW[pool.type_name]) for name, pool in keys.items()]
    fields.append(("ts", values.NTZ if ntz else values.UTC))
    fields += [(name, values.ARROW[type_name]) for name, (type_name, _) in columns.items()]
    schema = pa.schema(fields)
    batches = []
    for epoch, size in enumerate(sizes):
        made: list[list[Any]] = [[rng.choice(pool.values) for _ in range(size)] for pool in keys.values()]
        made.append([_time(rng, timing, epoch) for _ in range(size)])
        for type_name, summable in columns.values():
            draw = values.draw_summable if summable else values.draw
            made.append([None if rng.random() < 0.2 else draw(type_name, rng) for _ in range(size)])
        table = pa.table([pa.array(c, f.type) for c, f in zip(made, schema, strict=True)], schema=schema)
        if size and rng.random() < 0.5:  # the very same rows again
            table = pa.concat_tables([table, table.slice(0, max(1, size // 3))]).combine_chunks()
        batches.append(table)
    return schema, tuple(batches)


def _time(rng: random.Random, timing: Timing, epoch: int) -> int | None:
    if rng.random() < timing.null_share:
        return None
    now = timing.base + epoch * timing.step
    behind = rng.randrange(timing.far + 1) if rng.random() < 0.1 else 0
    # Whole steps half of the time, so that rows fall exactly on the edges of windows.
    time = now - behind + rng.randrange(-timing.spread, timing.spread + 1)
    return time - time % SECOND if timing.step % SECOND == 0 and rng.random() < 0.4 else time


@st.composite
def window_shapes(draw: st.DrawFn) -> Windows:
    unit = draw(st.sampled_from([1, 1000, SECOND, SECOND, SECOND, 60 * SECOND]))
    size = draw(st.integers(1, 24))
    kind = draw(st.sampled_from(["tumbling", "sliding", "uneven"]))
    if kind == "tumbling":
        slide = size
    elif kind == "sliding":
        slide = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0 and size // d <= 8]))
    else:
        slide = draw(st.integers(max(1, -(-size // 8)), size))
    offset = draw(st.integers(1 - slide, slide - 1)) if draw(st.booleans()) else 0
    return Windows(size * unit, slide * unit, offset * unit)


@st.composite
def cases(draw: st.DrawFn, *, rule: str = "tailrace") -> Case:
    seed = draw(st.integers(0, 2**32 - 1), label="seed")
    rng = random.Random(seed)
    key_types = draw(st.lists(st.sampled_from(values.KEY_TYPES), max_size=4), label="key types")
    keys = {
        f"k{i}": values.Pool.make(name, rng, draw(st.integers(1, 5)), nulls=draw(st.booleans()))
        for i, name in enumerate(key_types)
    }
    value_types = draw(st.lists(st.sampled_from(list(values.ARROW)), min_size=1, max_size=3, unique=True))
    columns, every = value_columns(value_types)
    windows = draw(window_shapes(), label="windows") if draw(st.integers(0, 3)) < 3 else None
    modes = ["update", "complete"] if windows is None else ["append", "update", "complete"]
    mode = draw(st.sampled_from(modes), label="mode")
    width = windows.size if windows else 10 * SECOND
    delay: int | None = draw(st.sampled_from([0, 1, width // 2, 2 * width]), label="delay")
    # Without a watermark windows never close; only update can show them. Spark's rule needs one.
    if mode != "append" and rule == "tailrace" and windows is not None and draw(st.integers(0, 4)) == 0:
        delay = None
    timing = Timing(
        base=draw(st.sampled_from(BASES if rule == "tailrace" else BASES[:2]), label="base"),
        step=max(1, draw(st.sampled_from([2 * width, width, width // 3]), label="step")),
        spread=draw(st.sampled_from([width // 2, 2 * width, 0]), label="spread"),
        far=draw(st.sampled_from([10 * width, 0]), label="far"),
        null_share=draw(st.sampled_from([0.0, 0.05]), label="null times"),
    )
    # From the seed: left to itself, hypothesis would spend its few examples on streams of no rows.
    sizes = rng.choices([0, 1, 15, 60], weights=[2, 1, 3, 3], k=rng.randint(4, 7))
    ntz = rule == "tailrace" and draw(st.booleans(), label="ntz")  # Spark has no watermark on such a column
    schema, batches = make_batches(rng, keys, columns, timing, sizes, ntz=ntz)
    options = {
        "shards": str(draw(st.sampled_from([1, 3, 64]), label="shards")),
        "combine": draw(st.sampled_from(["auto", "on", "off"]), label="combine"),
        "route": draw(st.sampled_from(["direct", "direct", "shuffle"]), label="route"),
        "watermark": rule,
    }
    if windows is not None and rule == "tailrace" and draw(st.booleans(), label="whole groups"):
        for name, (type_name, _) in columns.items():
            every += holistic_for(name, type_name, rng)
    questions = Question(tuple(keys), tuple(every), windows, "ts", delay, mode, rule)
    return Case(questions, schema, batches, options, draw(st.sampled_from([1, 3]), label="files"), seed)
