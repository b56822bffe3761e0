"""Hints out of columns: for every key that comes and is not hot, one, to the server that owns it, with its time."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.dedup.ingest import DedupIngest
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.ingest.hint_extractor import HASH_COLUMN, HintExtractor, hash_columns, hinted_keys
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.operators.windows.panes import Panes
from tailrace.state.cache.frequency_sketch import SketchSize
from tailrace.state.layout import HASH
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

TEXT = DataType("string")
KEYS = (Field("k", BIGINT), Field("s", TEXT))
TIME = Field("ts", TIMESTAMP)
NEVER_HOT = SketchSize(threshold=254, interval=1 << 40)
SHARDS = 8

_rows = st.lists(
    st.tuples(
        st.none() | st.integers(-3, 5), st.none() | st.sampled_from(["", "a", "bb"]), st.none() | st.integers(0, 99)
    ),
    max_size=60,
)


def _spec(**given: object) -> HintSpec:
    plain: dict[str, object] = {"time": TIME, "whole_keys": False, "shards": SHARDS}
    return HintSpec("op", KEYS, **{**plain, **given})  # type: ignore[arg-type]


def _columns(rows: list[tuple[int | None, str | None, int | None]]) -> dict[str, pa.Array]:
    return {
        "k": pa.array([row[0] for row in rows], pa.int64()),
        "s": pa.array([row[1] for row in rows], pa.string()),
        "ts": pa.array([row[2] for row in rows], pa.timestamp("us", tz="UTC")),
    }


@settings(max_examples=150)
@given(_rows, st.booleans(), st.integers(0, SHARDS))
def test_every_key_once_with_its_time_to_its_owner(
    rows: list[tuple[int | None, str | None, int | None]], complete: bool, cut: int
) -> None:
    columns = _columns(rows)
    hashes = hash_columns(KEYS, columns)
    times = [time for _, _, time in rows if time is not None]
    found = HintExtractor(_spec(whole_keys=complete), NEVER_HOT).hints(columns, 7, [(0, cut), (cut, SHARDS)])
    for number, hints in enumerate(found):
        wanted = {hash_ for hash_ in hashes.tolist() if (hash_ % SHARDS >= cut) == bool(number)} if times else set()
        if hints is None:
            assert not wanted
            continue
        received = hinted_keys(hints.batch, hints.time, KEYS)
        sent, moments, keys = received.hashes, received.times, received.keys
        assert received.panes is None
        assert len(sent) == len(hints) == len(set(sent.tolist())) and set(sent.tolist()) == wanted
        assert set(moments.tolist()) == {max(times)} and len(moments) == len(sent)
        assert hints.hashes.column(HASH_COLUMN).to_pylist() == sent.tolist(), "what a server is asked by"
        if complete:
            assert keys is not None and HASH_COLUMN not in keys.schema.names
            assert hash_columns(KEYS, {name: keys.column(name) for name in ("k", "s")}).tolist() == sent.tolist()
        else:
            assert keys is None


@settings(max_examples=150)
@given(_rows, st.integers(1, 40), st.integers(-7, 7), st.integers(0, SHARDS))
def test_every_pane_that_a_key_has_rows_in(
    rows: list[tuple[int | None, str | None, int | None]], width: int, offset: int, cut: int
) -> None:
    columns = _columns(rows)
    hashes = hash_columns(KEYS, columns).tolist()
    spec = _spec(panes=Panes(Micros(width), Micros(offset)))
    found = HintExtractor(spec, NEVER_HOT).hints(columns, 7, [(0, cut), (cut, SHARDS)])
    for number, hints in enumerate(found):
        wanted = {
            (hash_, time - (time - offset) % width)
            for hash_, (_, _, time) in zip(hashes, rows, strict=True)
            if time is not None and (hash_ % SHARDS >= cut) == bool(number)
        }
        sent: list[tuple[int, int]] = []
        if hints is not None:
            received = hinted_keys(hints.batch, hints.time, KEYS)
            assert received.panes is not None and received.keys is None
            sent = list(zip(received.hashes.tolist(), received.panes.tolist(), strict=True))
        assert len(sent) == len(set(sent)) and set(sent) == wanted


def test_hashes_are_those_of_the_state() -> None:
    columns = _columns([(number, "x" * (number % 5), number) for number in range(100)])
    spec = DeduplicateSpec("d", KEYS, (*KEYS, TIME), TIME, False, False, 0, False, SHARDS)  # type: ignore[arg-type]
    frame = DedupIngest(spec, MIN_MICROS, False).frame([pa.RecordBatch.from_pydict(columns)])
    assert sorted(hash_columns(KEYS, columns).tolist()) == sorted(frame.rows[:, HASH].tolist())


def test_hot_keys_send_none_and_cool_down() -> None:
    extractor = HintExtractor(_spec(time=None), SketchSize(threshold=10, interval=2000))
    hot = _columns([(1, "a", 0)] * 50 + [(number, "b", 0) for number in range(50)])
    (hints,) = extractor.hints(hot, 3, [(0, SHARDS)])
    assert hints is not None and len(hints) == 51, "at first nothing is known to be hot"
    (hints,) = extractor.hints(hot, 4, [(0, SHARDS)])
    assert hints is not None
    received = hinted_keys(hints.batch, hints.time, KEYS)
    assert set(received.times.tolist()) == {4}, "without an event time the epoch stands for it"
    assert hash_columns(KEYS, hot)[0] not in received.hashes.tolist() and len(hints) == 50
    extractor.hints(_columns([(number, "c", 0) for number in range(20_000)]), 5, [(0, SHARDS)])
    (hints,) = extractor.hints(_columns([(1, "a", 0)]), 6, [(0, SHARDS)])
    assert hints is not None and len(hints) == 1


def test_a_key_is_hinted_once_in_an_epoch() -> None:
    extractor = HintExtractor(_spec(), NEVER_HOT)
    rows: list[tuple[int | None, str | None, int | None]] = [(number, "a", 3) for number in range(50)]

    def sent(more: list[tuple[int | None, str | None, int | None]], epoch: int, try_: int = 0) -> int:
        (hints,) = extractor.hints(_columns(more), epoch, [(0, SHARDS)], try_)
        return 0 if hints is None else len(hints)

    assert sent(rows, 1) == 50
    assert sent(rows, 1) == 0
    assert sent([*rows, (50, "a", 3)], 1) == 1
    assert sent(rows, 1, 1) == 50, "another try may be that of another server"
    assert sent(rows, 2) == 50


def test_keys_that_were_pushed_out_are_hinted_again() -> None:
    extractor = HintExtractor(_spec(time=None), NEVER_HOT)
    many = _columns([(number, "a", 0) for number in range(100_000)])
    total = 0
    for _ in range(2):
        (hints,) = extractor.hints(many, 1, [(0, SHARDS)])
        total += 0 if hints is None else len(hints)
    assert 100_000 < total <= 200_000


def test_rows_without_a_time_give_no_hint() -> None:
    assert HintExtractor(_spec(), NEVER_HOT).hints(_columns([(1, "a", None)]), 0, [(0, SHARDS)]) == [None]


@pytest.mark.parametrize("given", [{}, {"time": None, "whole_keys": True}, {"panes": Panes(Micros(60), Micros(7))}])
def test_a_spec_travels(given: dict[str, object]) -> None:
    spec = _spec(**given)
    assert HintSpec.from_json(spec.to_json()) == spec
    assert spec.columns == ((*KEYS, TIME) if spec.time else KEYS)
