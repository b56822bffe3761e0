"""Sessions against a model in plain Python: any order of rows, late ones, both modes, failed tries, lost servers."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators import lift
from tailrace.operators.frame import Frame, split
from tailrace.operators.lift import Lifter
from tailrace.operators.session_aggregate import SessionAggregate
from tailrace.operators.spec import Accumulator, Lift, OperatorSpec, Output, Result
from tailrace.state import read_modify_write
from tailrace.state.layout import HASH, Merge
from tailrace.state.table import Rows
from tailrace.testing.question import Aggregate, Question
from tailrace.testing.sessions import judge_sessions
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

STRING = DataType("string")
SHARDS = 3
GAP = 10
DELAY = 12
TYPES = {"v": BIGINT, "s": STRING, "ts": TIMESTAMP, "k": STRING}
Row = tuple[str | None, int, int | None, str | None]


def spec_of(emit_changed: bool, gap: int = GAP) -> OperatorSpec:
    return OperatorSpec(
        name="sessions",
        keys=(Field("k", STRING),),
        accumulators=(
            Accumulator(Merge.MIN, Lift.VALUE, "ts", TIMESTAMP),
            Accumulator(Merge.MAX, Lift.VALUE, "ts", TIMESTAMP),
            Accumulator(Merge.ADD, Lift.ONE, None, BIGINT),
            Accumulator(Merge.ADD, Lift.VALUE, "v", BIGINT),
            Accumulator(Merge.MAX, Lift.VALUE, "s", STRING),
            Accumulator(Merge.LAST, Lift.TIMED, "v", BIGINT),
        ),
        outputs=(
            Output("n", Result.VALUE, (2,), BIGINT),
            Output("sum", Result.VALUE, (3,), BIGINT),
            Output("max", Result.VALUE, (4,), STRING),
            Output("last", Result.VALUE, (5,), BIGINT),
            Output("first time", Result.VALUE, (0,), TIMESTAMP),
        ),
        window=None,
        window_name="session_window",
        window_position=0,
        time_column=Field("ts", TIMESTAMP),
        emit_changed=emit_changed,
        watermarked=True,
        ansi=True,
        shards=SHARDS,
        session_gap=Micros(gap),
    )


def row(times: st.SearchStrategy[int]) -> st.SearchStrategy[Row]:
    keys = st.sampled_from([None, "", "a", "b", "aa", "ß"])
    return st.tuples(keys, times, st.one_of(st.none(), st.integers(-9, 9)), st.one_of(st.none(), st.text(max_size=4)))


@st.composite
def streams(draw: st.DrawFn) -> list[list[Row]]:
    """Time moves on by steps, some wide, some none; rows lie around it, some far behind."""
    epochs, now = [], draw(st.sampled_from([0, -35, 1000]))
    for _ in range(draw(st.integers(1, 8))):
        now += draw(st.sampled_from([0, 5, 10, 11, 40]))
        times = st.one_of(st.integers(now - 15, now + 15), st.integers(now - 60, now + 3))
        epochs.append(draw(st.lists(row(times), max_size=14)))
    return epochs


@pytest.fixture(autouse=True)
def few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys collide all the time, in the index and in full."""
    real = lift.put_hashes

    def coarse(rows: Rows, program: np.ndarray) -> None:
        real(rows, program)
        rows.words[:, HASH] = rows.words[:, HASH] % 3 - 1

    monkeypatch.setattr(lift, "put_hashes", coarse)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    types = (("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64()), ("s", pa.string()))
    return pa.RecordBatch.from_pydict(
        {name: pa.array([each[i] for each in rows], type_) for i, (name, type_) in enumerate(types)}
    )


def wanted(epochs: list[list[Row]], mode: str, gap: int = GAP) -> tuple[list[dict[tuple, tuple]], tuple, tuple]:
    """What each epoch must emit; late rows; closing watermarks."""
    question = Question(("k",), (Aggregate("count", None, "n"),), None, "ts", DELAY, output_mode=mode, session_gap=gap)
    judged = judge_sessions(question, [[r[:1] for r in e] for e in epochs], [[r[1] for r in e] for e in epochs])
    out: list[dict[tuple, tuple]] = [{} for _ in epochs]
    for session in judged.sessions:
        rows = [epochs[epoch][at] for epoch, at in session.rows]
        sums = [r[2] for r in rows if r[2] is not None]
        texts = [r[3].encode() for r in rows if r[3] is not None]
        last = max((r[1], r[2] is not None, r[2] or 0) for r in rows)
        key = (rows[0][0], session.start, session.end)
        assert key not in out[session.shown]
        out[session.shown][key] = (
            len(rows),
            sum(sums) if sums else None,
            max(texts).decode() if texts else None,
            last[2] if last[1] else None,
            session.start,
        )
    return out, judged.late, judged.closing


def emitted(batches: list[pa.RecordBatch]) -> dict[tuple, tuple]:
    out: dict[tuple, tuple] = {}
    for batch in batches:
        bounds = [batch["session_window"].field(i).cast(pa.int64()).to_pylist() for i in range(2)]
        firsts = batch["first time"].cast(pa.int64()).to_pylist()
        values = [batch[name].to_pylist() for name in ("n", "sum", "max", "last")]
        for key, start, end, *rest in zip(batch["k"].to_pylist(), *bounds, *values, firsts, strict=True):
            assert (key, start, end) not in out, "a session twice"
            out[key, start, end] = tuple(rest)
    return out


@settings(max_examples=250, deadline=None, print_blob=True)
@given(streams(), st.sampled_from(["append", "update"]), st.booleans(), st.integers(0, 1000))
def test_equals_the_model(epochs: list[list[Row]], mode: str, combine: bool, seed: int) -> None:
    spec = spec_of(mode == "update")
    want, want_late, closing = wanted(epochs, mode)
    chance = random.Random(seed)
    ranges = [(0, 1), (1, SHARDS)]
    servers = [SessionAggregate(spec, range(*r), threads=1) for r in ranges]
    sections: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for epoch, rows in enumerate(epochs):
        before = MIN_MICROS if epoch == 0 or closing[epoch - 1] is None else closing[epoch - 1]
        watermark = MIN_MICROS if closing[epoch] is None else closing[epoch]
        late = 0

        def frames(given_rows: list[Row], late_before: int = before) -> tuple[list[Frame], int]:
            out, late = [], 0
            cut = len(given_rows) // 2
            for part in (given_rows[:cut], given_rows[cut:]):
                lifter = Lifter(spec, late_before, combine, TYPES)
                out.append(lifter.frame([batch_of(part)]))
                late += lifter.counts.late_rows
            return out, late

        whole, late = frames(rows)
        assert late == want_late[epoch]
        got: dict[tuple, tuple] = {}
        for number, server in enumerate(servers):
            if chance.random() < 0.4:  # a try that fails half-way
                junk, _ = frames(epochs[chance.randrange(len(epochs))])
                server.apply(epoch, [split(frame, spec.layout(), ranges)[number] for frame in junk])
                if chance.random() < 0.6:
                    server.advance(epoch, before, max(watermark, before) + chance.randrange(40))
                server.undo(epoch)
            server.apply(epoch, [split(frame, spec.layout(), ranges)[number] for frame in whole])
            got |= emitted(server.advance(epoch, before, watermark))
            for shard, batch in server.delta(epoch).items():
                sections[shard].append(batch)
        assert got == want[epoch], f"epoch {epoch}"
        if chance.random() < 0.3:  # the first server is lost and comes back from its sections
            servers[0] = SessionAggregate(spec, [], threads=1)
            for shard in range(*ranges[0]):
                if chance.random() < 0.5 and len(sections[shard]) > 1:
                    at = chance.randrange(len(sections[shard]) - 1)
                    folded = read_modify_write.fold_sections(spec.layout(), sections[shard][at:], MIN_MICROS)
                    sections[shard][at:] = [folded]
                servers[0].restore(shard, sections[shard], MIN_MICROS)
        elif chance.random() < 0.3:
            servers[1].forget(epoch)
    for server in servers:
        server.close()


def test_nothing_is_left_of_closed_sessions() -> None:
    spec = spec_of(False)
    operator = SessionAggregate(spec, range(SHARDS), threads=1)
    emitted_rows = 0
    for epoch in range(40):
        rows: list[Row] = [(str(i), 100 * epoch + i % 7, 1, "x") for i in range(300)]
        operator.apply(epoch, [Lifter(spec, MIN_MICROS, True, TYPES).frame([batch_of(rows)])])
        emitted_rows += sum(len(b) for b in operator.advance(epoch, 100 * (epoch - 1), 100 * epoch))
        operator.forget(epoch - 1)
        assert operator.rows == 300
    assert emitted_rows == 39 * 300
    operator.apply(40, [])
    operator.advance(40, 3900, 10_000)
    assert operator.rows == 0
    assert operator.nbytes < 500_000


def test_a_long_session_is_one() -> None:
    """A session of thousands of panes, its rows in any order, with others beside it that it takes in."""
    spec = spec_of(False)
    operator = SessionAggregate(spec, range(SHARDS), threads=1)
    times = list(range(0, 50_000, 10))
    random.Random(5).shuffle(times)
    frame = Lifter(spec, MIN_MICROS, True, TYPES).frame([batch_of([("a", time, 1, None) for time in times])])
    operator.apply(0, [frame])
    assert operator.advance(0, MIN_MICROS, 50_000 - 1) == []
    operator.apply(1, [])
    assert emitted(operator.advance(1, 50_000 - 1, 50_000)) == {("a", 0, 50_000): (5000, 5000, None, 1, 0)}
    assert operator.rows == 0
