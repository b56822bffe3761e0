"""Custom windows, count windows and groups without a window: models in plain Python, row by row, and a driver that
runs streams of rows through an operator on two servers, with failures.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Inputs, Output
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.ingest.frame import Frame, split
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.registry import compact_sections, ingest_of
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.windows.custom_window import CustomWindowSpec
from tailrace.state.layout import Merge
from tailrace.testing.lateness import closing_watermarks
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP, DataType, Field, array

STRING = DataType("string")
SHARDS = 4
DELAY = 12
TYPES = {"v": BIGINT, "s": STRING, "ts": TIMESTAMP, "k": STRING}
Row = tuple[str | None, int | None, int | None, str | None]
Answers = dict[tuple[Any, ...], tuple[Any, ...]]

INCREMENTAL = ("n", "total", "least", "newest")
HOLISTIC = (*INCREMENTAL, "middle", "texts", "different", "top")
ACCUMULATORS = (
    Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
    Accumulator(Merge.ADD, AccumulatorInput.VALUE, "v", BIGINT),
    Accumulator(Merge.MIN, AccumulatorInput.VALUE, "s", STRING),
    Accumulator(Merge.LAST, AccumulatorInput.TIMED, "v", BIGINT),
)
_V = Inputs(("v",), (BIGINT,))
STATES = (
    *DESCRIPTORS["count_distinct"].accumulators(_V),
    *DESCRIPTORS["top_k"].accumulators(Inputs(("v",), (BIGINT,), (2,))),
)
OUTPUTS = {
    "n": Output("n", "count", (0,), BIGINT),
    "total": Output("total", "sum", (1,), BIGINT),
    "least": Output("least", "max", (2,), STRING),
    "newest": Output("newest", "max", (3,), BIGINT),
    "middle": Output("middle", "quantile", (), DOUBLE, ("v",), (0.5,)),
    "texts": Output("texts", "collect_list", (), array(STRING), ("s",)),
    "different": Output("different", "count_distinct", (4,), BIGINT, ("v",)),
    "top": Output("top", "top_k", (5,), array(BIGINT), ("v",), (2,)),
}
ROWS = (Field("s", STRING), Field("ts", TIMESTAMP), Field("v", BIGINT))


def spec_of(names: Iterable[str], **given: Any) -> AggregateSpec:
    states = STATES if {"different", "top"} & {*names} else ()
    settings: dict[str, Any] = {
        "name": "windows",
        "keys": (Field("k", STRING),),
        "accumulators": (*ACCUMULATORS, *states),
        "outputs": tuple(OUTPUTS[name] for name in names),
        "window": None,
        "window_name": "window",
        "window_position": 1,
        "time_column": Field("ts", TIMESTAMP),
        "emit_changed": False,
        "watermarked": True,
        "ansi": True,
        "shards": SHARDS,
        "rows": ROWS,
    }
    return AggregateSpec(**(settings | given))


# Rows ----------------------------------------------------------------------------------------------------------------


@st.composite
def streams(draw: st.DrawFn, nulls: bool = False) -> list[list[Row]]:
    """Time moves on by steps, some wide, some none; rows lie around it, some far behind."""
    keys = st.sampled_from([None, "", "a", "b", "aa", "ß"])
    values, texts = st.one_of(st.none(), st.integers(-9, 9)), st.one_of(st.none(), st.text(max_size=4))
    epochs, now = [], draw(st.sampled_from([0, -35, 1000]))
    for _ in range(draw(st.integers(1, 7))):
        now += draw(st.sampled_from([0, 5, 10, 11, 40]))
        near, far = st.integers(now - 15, now + 15), st.integers(now - 60, now + 3)
        times = st.one_of(near, far, st.none()) if nulls else st.one_of(near, far)
        epochs.append(draw(st.lists(st.tuples(keys, times, values, texts), max_size=14)))
    return epochs


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    types = (("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64()), ("s", pa.string()))
    return pa.RecordBatch.from_pydict(
        {name: pa.array([each[i] for each in rows], type_) for i, (name, type_) in enumerate(types)}
    )


def answer(rows: list[Row], names: Iterable[str]) -> tuple[Any, ...]:
    """The outputs over a group's rows."""
    values = [r[2] for r in rows if r[2] is not None]
    texts = [(-(2**63) if r[1] is None else r[1], r[3].encode()) for r in rows if r[3] is not None]
    newest = max(rows, key=lambda r: (r[1] is not None, r[1] or 0, r[2] is not None, r[2] or 0))
    found = {
        "n": len(rows),
        "total": sum(values) if values else None,
        "least": min((text for _, text in texts), default=None),
        "newest": newest[2],
        "middle": float(median(values)) if values else None,
        "texts": [text.decode() for _, text in sorted(texts)],
        "different": len(set(values)),
        "top": sorted(values, reverse=True)[:2],
    }
    found["least"] = None if found["least"] is None else found["least"].decode()
    return tuple(found[name] for name in names)


# Models --------------------------------------------------------------------------------------------------------------


@dataclass
class Wanted:
    """What each epoch must emit, by (key, window); late rows and the closing watermark of each.

    ``standing``: all groups that were open in the epoch.
    """

    groups: list[dict[tuple[Any, ...], list[Row]]]
    late: list[int]
    closing: list[int]
    timeless: list[int] = field(default_factory=list)
    standing: list[dict[tuple[Any, ...], list[Row]]] = field(default_factory=list)


def answers_of(groups: dict[tuple[Any, ...], list[Row]], names: Iterable[str]) -> Answers:
    return {key: answer(rows, names) for key, rows in groups.items()}


def window_of(time: int) -> tuple[int, int]:
    """Long windows, short ones that overlap them, and some with the end of a long one and a start of their own."""
    long = time // 40 * 40
    if time % 3 == 1:
        short = (time - 1) // 10 * 10 + 1
        return short, short + 10
    if time % 3 == 2 and time % 40 >= 2:
        return long + 2, long + 40
    return long, long + 40


def assign(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for whole arrays."""
    micros = times.astype(np.int64)
    long, short = micros // 40 * 40, (micros - 1) // 10 * 10 + 1
    starts = np.where(micros % 3 == 1, short, np.where((micros % 3 == 2) & (micros % 40 >= 2), long + 2, long))
    ends = np.where(micros % 3 == 1, short + 10, long + 40)
    return starts.astype("datetime64[us]"), ends.astype("datetime64[us]")


CUSTOM = CustomWindowSpec(packed(assign))


def by_time(
    epochs: list[list[Row]], windows: Callable[[int], tuple[int, int]], *, update: bool, delay: int | None = DELAY
) -> Wanted:
    """Windows that end by the watermark, each row in one."""
    marks = closing_watermarks([[row[1] for row in rows] for rows in epochs], delay, "tailrace")
    closing = [MIN_MICROS if mark is None else mark for mark in marks]
    wanted = Wanted([{} for _ in epochs], [0] * len(epochs), closing, [0] * len(epochs))
    kept: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for epoch, rows in enumerate(epochs):
        before = closing[epoch - 1] if epoch else MIN_MICROS
        touched = []
        for row in rows:
            if row[1] is None:
                wanted.timeless[epoch] += 1
                continue
            start, end = windows(row[1])
            if end <= before:
                wanted.late[epoch] += 1
                continue
            kept[row[0], start, end].append(row)
            touched.append((row[0], start, end))
        wanted.standing.append({key: list(found) for key, found in kept.items()})
        closed = [key for key in kept if key[2] <= closing[epoch]]
        for key in touched if update else closed:
            wanted.groups[epoch][key] = list(kept[key])
        for key in closed:
            del kept[key]
    return wanted


def by_slide(
    epochs: list[list[Row]], size: int, slide: int, offset: int, *, update: bool, delay: int | None = DELAY
) -> Wanted:
    """Windows that end by the watermark, one every ``slide``: a row is in as many as overlap."""
    marks = closing_watermarks([[row[1] for row in rows] for rows in epochs], delay, "tailrace")
    closing = [MIN_MICROS if mark is None else mark for mark in marks]
    wanted = Wanted([{} for _ in epochs], [0] * len(epochs), closing, [0] * len(epochs))
    kept: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for epoch, rows in enumerate(epochs):
        before = closing[epoch - 1] if epoch else MIN_MICROS
        touched = set()
        for row in rows:
            if row[1] is None:
                wanted.timeless[epoch] += 1
                continue
            newest = (row[1] - offset) // slide * slide + offset
            starts = [start for start in range(newest, row[1] - size, -slide) if start + size > before]
            wanted.late[epoch] += not starts
            for start in starts:
                kept[row[0], start, start + size].append(row)
                touched.add((row[0], start, start + size))
        wanted.standing.append({key: list(found) for key, found in kept.items()})
        closed = [key for key in kept if key[2] <= closing[epoch]]
        for key in touched if update else closed:
            wanted.groups[epoch][key] = list(kept[key])
        for key in closed:
            del kept[key]
    return wanted


def by_count(
    epochs: list[list[Row]],
    size: int,
    *,
    update: bool,
    in_time: bool = False,
    delay: int = DELAY,
    slide: int | None = None,
) -> Wanted:
    """``size`` rows of a key, one such window every ``slide`` rows. ``in_time``: rows before the watermark are late."""
    slide = slide or size
    marks = closing_watermarks([[row[1] for row in rows] for rows in epochs], delay if in_time else None, "tailrace")
    closing = [MIN_MICROS if mark is None else mark for mark in marks]
    wanted = Wanted([{} for _ in epochs], [0] * len(epochs), closing, [0] * len(epochs))
    came: dict[Any, list[Row]] = defaultdict(list)
    for epoch, rows in enumerate(epochs):
        before = closing[epoch - 1] if epoch else MIN_MICROS
        touched: set[tuple[Any, int]] = set()
        for row in sorted(rows, key=_in_count_order):
            if in_time and row[1] is None:
                wanted.timeless[epoch] += 1
            elif in_time and row[1] is not None and row[1] < before:
                wanted.late[epoch] += 1
            else:
                place = len(came[row[0]])
                starts = [start for start in range(0, place + 1, slide) if start <= place < start + size]
                touched |= {(row[0], start // slide) for start in starts}
                came[row[0]].append(row)
        for key, number in touched:
            window = came[key][number * slide : number * slide + size]
            if update or len(window) == size:
                wanted.groups[epoch][key, number] = window
    return wanted


def _in_count_order(row: Row) -> tuple[Any, ...]:
    """By event time, then by the other columns in the order of ``ROWS``, null first."""
    _, time, value, text = row
    text_key = (text is not None, b"" if text is None else text.encode())
    return (time is not None, time or 0), text_key, (value is not None, value or 0)


def over_all_time(epochs: list[list[Row]]) -> Wanted:
    """One group a key, for ever; those that an epoch changed."""
    kept: dict[Any, list[Row]] = defaultdict(list)
    wanted = Wanted([{} for _ in epochs], [0] * len(epochs), [MIN_MICROS] * len(epochs), [0] * len(epochs))
    for epoch, rows in enumerate(epochs):
        for row in rows:
            kept[row[0]].append(row)
        for row in rows:
            wanted.groups[epoch][row[0],] = list(kept[row[0]])
    return wanted


# Playing -------------------------------------------------------------------------------------------------------------


def emitted(batches: list[pa.RecordBatch], names: Iterable[str], window: str = "window") -> Answers:
    out: Answers = {}
    for batch in batches:
        keys = [batch["k"].to_pylist()]
        if window in batch.schema.names:
            column = batch[window]
            parts = column.flatten() if pa.types.is_struct(column.type) else [column]
            keys += [part.cast(pa.int64()).to_pylist() for part in parts]
        values = [batch[name].to_pylist() for name in names]
        for key, rest in zip(zip(*keys, strict=True), zip(*values, strict=True), strict=True):
            assert key not in out, "a group twice"
            out[key] = rest
    return out


def play(
    spec: OperatorSpec,
    make: Callable[[Iterable[int]], Operator],
    epochs: list[list[Row]],
    wanted: Wanted,
    names: Iterable[str],
    *,
    combine: bool,
    seed: int,
    at_least: bool = False,
    answers: Callable[[dict[tuple[Any, ...], list[Row]]], Answers] | None = None,
    read: Callable[[list[pa.RecordBatch]], Answers] | None = None,
) -> None:
    """Two servers; tries that fail half-way; a lost server; moved shards; compacted sections.

    ``at_least``: groups that did not change may be emitted too, if they are right. ``answers``, ``read``: what groups
    must give, and what batches do, where that is not one row with ``names`` for each.
    """
    names = tuple(names)
    answers = answers or partial(answers_of, names=names)
    read = read or partial(emitted, names=names)
    chance = random.Random(seed)
    ranges = [(0, 1), (1, spec.shards)]
    servers = [make(range(*r)) for r in ranges]
    sections: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for epoch, rows in enumerate(epochs):
        before, watermark = wanted.closing[epoch - 1] if epoch else MIN_MICROS, wanted.closing[epoch]

        def frames(given_rows: list[Row], late_before: int = before) -> tuple[list[Frame], int, int]:
            out, late, timeless = [], 0, 0
            cut = len(given_rows) // 2
            for part in (given_rows[:cut], given_rows[cut:]):
                ingest = ingest_of(spec, late_before, combine, TYPES)
                out.append(ingest.frame([batch_of(part)]))
                late += ingest.counts.late_rows
                timeless += ingest.counts.null_time_rows
            return out, late, timeless

        all_frames, late, timeless = frames(rows)
        assert (late, timeless) == (wanted.late[epoch], wanted.timeless[epoch])
        got: Answers = {}
        for number, server in enumerate(servers):
            if chance.random() < 0.4:
                junk, _, _ = frames(epochs[chance.randrange(len(epochs))])
                server.apply(epoch, [split(frame, spec.layout(), ranges)[number] for frame in junk])
                if chance.random() < 0.6:
                    server.advance(epoch, before, max(watermark, before) + chance.randrange(40))
                server.undo(epoch)
            server.apply(epoch, [split(frame, spec.layout(), ranges)[number] for frame in all_frames])
            got |= read(server.advance(epoch, before, watermark))
            for shard, batch in server.delta(epoch).items():
                sections[shard].append(batch)
        right = answers(wanted.groups[epoch])
        if at_least:
            assert right.items() == {key: got[key] for key in right if key in got}.items(), f"epoch {epoch}"
            standing = answers(wanted.standing[epoch])
            right = {key: standing[key] for key in got}
        assert got == right, f"epoch {epoch}"
        horizon = max(server.horizon for server in servers)
        what = chance.random()
        if what < 0.3:
            servers[0].close()
            servers[0] = make([])
            for shard in range(*ranges[0]):
                _restore(servers[0], spec, shard, sections[shard], horizon, chance)
        elif what < 0.5:
            to = chance.randint(1, spec.shards - 1)
            for shard in range(min(to, ranges[0][1]), max(to, ranges[0][1])):
                giver, taker = (servers[0], servers[1]) if to < ranges[0][1] else (servers[1], servers[0])
                giver.drop_shard(shard)
                _restore(taker, spec, shard, sections[shard], horizon, chance)
            ranges = [(0, to), (to, spec.shards)]
        elif what < 0.7:
            servers[1].forget(epoch)
    for server in servers:
        server.close()


def _restore(
    server: Operator,
    spec: OperatorSpec,
    shard: int,
    sections: list[pa.RecordBatch],
    horizon: int,
    chance: random.Random,
) -> None:
    if chance.random() < 0.5 and len(sections) > 1:
        at = chance.randrange(len(sections) - 1)
        sections[at:] = [compact_sections(spec, sections[at:], horizon, complete=at == 0)]
    server.restore(shard, sections, horizon)
