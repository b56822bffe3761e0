"""Random rows for sessions, and a driver that runs them through an operator on two servers, with failures."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame, split
from tailrace.operators.registry import ingest_of
from tailrace.testing.question import Aggregate, Question
from tailrace.testing.sessions import SessionJudgement, judge_sessions
from tailrace.types import BIGINT, TIMESTAMP, DataType

STRING = DataType("string")
GAP = 10
DELAY = 12
TYPES = {"v": BIGINT, "s": STRING, "ts": TIMESTAMP, "k": STRING, "e": TIMESTAMP}
OWN_GAPS = (3, 10, 1, 25, 60)
Row = tuple[str | None, int, int | None, str | None]
Emitted = dict[tuple[Any, ...], tuple[Any, ...]]
Compaction = Callable[[list[pa.RecordBatch]], pa.RecordBatch]


class Operator(Protocol):
    def apply(self, epoch: int, frames: Sequence[Frame]) -> None: ...
    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]: ...
    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]: ...
    def undo(self, epoch: int) -> None: ...
    def forget(self, epoch: int) -> None: ...
    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None: ...
    def close(self) -> None: ...


def _row(times: st.SearchStrategy[int]) -> st.SearchStrategy[Row]:
    keys = st.sampled_from([None, "", "a", "b", "aa", "ß"])
    return st.tuples(keys, times, st.one_of(st.none(), st.integers(-9, 9)), st.one_of(st.none(), st.text(max_size=4)))


@st.composite
def streams(draw: st.DrawFn, epochs_max: int = 8) -> list[list[Row]]:
    """Time moves on by steps, some wide, some none; rows lie around it, some far behind."""
    epochs, now = [], draw(st.sampled_from([0, -35, 1000]))
    for _ in range(draw(st.integers(1, epochs_max))):
        now += draw(st.sampled_from([0, 5, 10, 11, 40]))
        times = st.one_of(st.integers(now - 15, now + 15), st.integers(now - 60, now + 3))
        epochs.append(draw(st.lists(_row(times), max_size=14)))
    return epochs


def end_of(row: Row) -> int | None:
    """Where rows have gaps of their own: some none at all, some one that lasts no time."""
    _, time, value, _ = row
    return None if value is None or time is None else time + (0 if value < -8 else OWN_GAPS[value % len(OWN_GAPS)])


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    time = pa.timestamp("us", tz="UTC")
    types = (("k", pa.string()), ("ts", time), ("v", pa.int64()), ("s", pa.string()), ("e", time))
    every = [(*row, end_of(row)) for row in rows]
    return pa.RecordBatch.from_pydict(
        {name: pa.array([each[i] for each in every], type_) for i, (name, type_) in enumerate(types)}
    )


def judged(epochs: list[list[Row]], mode: str, *, own_gaps: bool = False) -> SessionJudgement:
    rows = Aggregate("count", None, "n")
    gap = {"session_ends": "e"} if own_gaps else {"session_gap": GAP}
    question = Question(("k",), (rows,), None, "ts", DELAY, output_mode=mode, **gap)
    ends = [[end_of(r) for r in e] for e in epochs] if own_gaps else None
    return judge_sessions(question, [[r[:1] for r in e] for e in epochs], [[r[1] for r in e] for e in epochs], ends)


def wanted(
    epochs: list[list[Row]], judgement: SessionJudgement, answer: Callable[[list[Row]], tuple[Any, ...]]
) -> list[Emitted]:
    """What each epoch must emit: (key, start, end) -> the answer over the session's rows, by time."""
    out: list[Emitted] = [{} for _ in epochs]
    for session in judgement.sessions:
        rows = [epochs[epoch][at] for epoch, at in session.rows]
        key = (rows[0][0], session.start, session.end)
        assert key not in out[session.shown]
        out[session.shown][key] = answer(rows)
    return out


def emitted(batches: list[pa.RecordBatch], names: Sequence[str]) -> Emitted:
    out: Emitted = {}
    for batch in batches:
        bounds = [batch["session_window"].field(i).cast(pa.int64()).to_pylist() for i in range(2)]
        values = [batch[name].to_pylist() for name in names]
        for key, start, end, *rest in zip(batch["k"].to_pylist(), *bounds, *values, strict=True):
            assert (key, start, end) not in out, "a session twice"
            out[key, start, end] = tuple(rest)
    return out


def final_sessions(
    epochs: list[list[Row]], answer: Callable[[list[Row]], tuple[Any, ...]], *, own_gaps: bool = False
) -> Emitted:
    """All sessions that there are in the end, those that are still open too."""
    latest = max((row[1] for rows in epochs for row in rows), default=0)
    closing: list[Row] = [("last", latest + 10 * GAP + DELAY, None, None)]
    epochs = [*epochs, closing]
    closed = wanted(epochs, judged(epochs, "append", own_gaps=own_gaps), answer)
    return {key: values for each in closed for key, values in each.items()}


class ChangedTable:
    """A table to which a changelog is applied, and which does not take what does not fit."""

    def __init__(self) -> None:
        self.rows: Emitted = {}

    def apply(self, batches: list[pa.RecordBatch], names: Sequence[str]) -> Emitted:
        """The rows that are new or changed."""
        changes: dict[str, Emitted] = {}
        for kind in ("delete", "update_preimage", "insert", "update_postimage"):
            chosen = [batch.filter(pc.equal(batch["_change_type"], kind)) for batch in batches]
            changes[kind] = emitted(chosen, names)
        assert sum(map(len, changes.values())) == sum(map(len, batches))
        for kind in ("delete", "update_preimage"):
            for session, values in changes[kind].items():
                assert self.rows.pop(session) == values, f"{kind} of {session}"
        assert changes["update_postimage"].keys() == changes["update_preimage"].keys()
        assert not changes["insert"].keys() & changes["delete"].keys()
        fresh = changes["insert"] | changes["update_postimage"]
        assert not fresh.keys() & self.rows.keys()
        self.rows |= fresh
        return fresh


def play(
    spec: AggregateSpec,
    make: Callable[[Iterable[int]], Operator],
    compact: Compaction,
    epochs: list[list[Row]],
    judgement: SessionJudgement,
    want: list[Emitted],
    *,
    combine: bool,
    seed: int,
    forgets: float = 0.3,
    read: Callable[[list[pa.RecordBatch], Sequence[str]], Emitted] = emitted,
) -> None:
    """Two servers; tries that fail half-way on one or both of them; a lost server; compacted sections."""
    names = [output.name for output in spec.outputs]
    chance = random.Random(seed)
    ranges = [(0, 1), (1, spec.shards)]
    servers = [make(range(*r)) for r in ranges]
    sections: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    closing = [MIN_MICROS, *(MIN_MICROS if each is None else each for each in judgement.closing)]
    for epoch, (rows, before, watermark) in enumerate(zip(epochs, closing, closing[1:], strict=False)):

        def frames(given_rows: list[Row], late_before: int = before) -> tuple[list[Frame], int]:
            out, late = [], 0
            cut = len(given_rows) // 2
            for part in (given_rows[:cut], given_rows[cut:]):
                ingest = ingest_of(spec, late_before, combine, TYPES)
                out.append(ingest.frame([batch_of(part)]))
                late += ingest.counts.late_rows
            return out, late

        all_frames, late = frames(rows)
        assert late == judgement.late[epoch]
        got: Emitted = {}
        for number, server in enumerate(servers):
            if chance.random() < 0.4:
                junk, _ = frames(epochs[chance.randrange(len(epochs))])
                server.apply(epoch, [split(frame, spec.layout(), ranges)[number] for frame in junk])
                if chance.random() < 0.6:
                    server.advance(epoch, before, max(watermark, before) + chance.randrange(40))
                server.undo(epoch)
            server.apply(epoch, [split(frame, spec.layout(), ranges)[number] for frame in all_frames])
            got |= read(server.advance(epoch, before, watermark), names)
            for shard, batch in server.delta(epoch).items():
                sections[shard].append(batch)
        assert got == want[epoch], f"epoch {epoch}"
        if chance.random() < 0.3:
            lost = chance.randrange(2)
            servers[lost].close()
            servers[lost] = make([])
            for shard in range(*ranges[lost]):
                if chance.random() < 0.5 and len(sections[shard]) > 1:
                    at = chance.randrange(len(sections[shard]) - 1)
                    sections[shard][at:] = [compact(sections[shard][at:])]
                servers[lost].restore(shard, sections[shard], MIN_MICROS)
        for server in servers:
            # As the driver does behind each epoch, but not always in time.
            if chance.random() < forgets:
                server.forget(epoch)
    for server in servers:
        server.close()
