"""The frequency sketch against exact counting, and against a sketch that is written down plainly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.state.cache.frequency_sketch import BITS, FrequencySketch, SketchSize

_KEYS = st.lists(st.integers(0, 40), max_size=400)


def _hashes(keys: list[int]) -> np.ndarray:
    """Spread over 64 bits, negative ones included, as the hashes of keys are."""
    return np.array([(key * 0x9E3779B97F4A7C15 + 7) % 2**64 for key in keys], np.uint64).view(np.int64)


def _exact(keys: list[int], interval: int) -> tuple[list[int], dict[int, int]]:
    """Of each key its count when it came, and all counts at the end, one counter a key, halved as the sketch's are."""
    counts: dict[int, int] = {}
    seen = []
    for number, key in enumerate(keys, 1):
        counts[key] = counts.get(key, 0) + 1
        seen.append(counts[key])
        if number % interval == 0:
            counts = {each: count // 2 for each, count in counts.items()}
    return seen, counts


def _sizes() -> st.SearchStrategy[SketchSize]:
    return st.sampled_from(BITS).flatmap(
        lambda bits: st.builds(
            SketchSize,
            rows=st.integers(1, 5),
            width=st.integers(1, 200),
            bits=st.just(bits),
            threshold=st.integers(0, min(2**bits - 2, 60)),
            interval=st.integers(1, 150),
        )
    )


@settings(max_examples=80)
@given(_KEYS, st.integers(1, 150), st.integers(0, 100), st.integers(1, 4), st.lists(st.integers(0, 400), max_size=3))
@example([5] * 300, 10_000, 254, 4, [])
def test_keys_that_share_no_counter_are_counted_exactly(
    keys: list[int], interval: int, threshold: int, rows: int, cuts: list[int]
) -> None:
    """So wide that none of the 41 keys meet."""
    size = SketchSize(rows, 1 << 22, 8, threshold, interval)
    sketch = FrequencySketch(size)
    seen, counts = _exact(keys, interval)
    hashes = _hashes(keys)
    hot = [sketch.add(part) for part in np.split(hashes, sorted(cut for cut in cuts if cut < len(keys)))]
    assert np.concatenate(hot).tolist() == [min(count, 255) > threshold for count in seen]
    everyone = list(range(41))
    assert sketch.counts(_hashes(everyone)).tolist() == [min(counts.get(key, 0), 255) for key in everyone]


@settings(max_examples=80)
@given(_KEYS, _sizes())
def test_a_key_is_never_counted_too_low(keys: list[int], size: SketchSize) -> None:
    sketch = FrequencySketch(size)
    hot = sketch.add(_hashes(keys))
    seen, counts = _exact(keys, size.interval)
    full = size.counter_max
    if max(seen, default=0) < full:  # a full counter forgets how far beyond it was, and halving then shows
        # Halves are rounded down, in a counter that keys share at most once: never below that of one key alone.
        assert all(hot[i] for i, count in enumerate(seen) if count > size.threshold)
        found = sketch.counts(_hashes(sorted(counts)))
        assert all(found[i] >= min(counts[key], full) for i, key in enumerate(sorted(counts)))
    assert not len(keys) or (sketch.counts(_hashes(keys)) <= full).all()


@settings(max_examples=40)
@given(_KEYS, _sizes(), st.integers(0, 400))
def test_how_keys_are_cut_to_batches_does_not_matter(keys: list[int], size: SketchSize, cut: int) -> None:
    complete, parts = FrequencySketch(size), FrequencySketch(size)
    hashes = _hashes(keys)
    at_once = complete.add(hashes)
    in_two = np.concatenate([parts.add(hashes[:cut]), parts.add(hashes[cut:])])
    assert at_once.tolist() == in_two.tolist()
    assert complete.counts(hashes).tolist() == parts.counts(hashes).tolist()


def test_counters_stop_and_neighbours_stay() -> None:
    """Every counter of a row is filled, one after the other: none runs over into the next."""
    for bits in BITS:
        size = SketchSize(rows=1, width=64, bits=bits, threshold=0, interval=1 << 40)
        sketch = FrequencySketch(size)
        keys = np.arange(200, dtype=np.int64)
        for _ in range(min(3 * size.counter_max, 1000)):
            sketch.add(keys[:1])
        one = sketch.counts(keys)
        assert one[0] == min(size.counter_max, min(3 * size.counter_max, 1000))
        assert set(one.tolist()) == {0, one[0]}, "only keys that share the counter have counted"


def test_what_was_hot_cools_down() -> None:
    sketch = FrequencySketch(SketchSize(rows=4, width=4096, bits=8, threshold=10, interval=1000))
    assert sketch.add(np.full(200, 7, np.int64))[-1]
    others = np.arange(1000, 9000, dtype=np.int64)
    assert not sketch.add(others).any()
    assert not sketch.add(np.array([7], np.int64))[0]


def test_memory_is_as_configured() -> None:
    assert FrequencySketch(SketchSize(rows=4, width=1024, bits=4, threshold=8)).nbytes == 4 * 1024 // 2
    assert FrequencySketch(SketchSize(rows=3, width=100, bits=8)).nbytes == 3 * 104
    assert SketchSize().nbytes == FrequencySketch().nbytes == 16_384


def test_skewed_keys_need_few_hints() -> None:
    """A tenth of the keys are half of the rows: they are found, and hardly any other is taken for one of them."""
    draw = np.random.default_rng(11)
    rows = 200_000
    hot = draw.random(rows) < 0.5
    keys = np.where(hot, draw.integers(0, 100, rows), draw.integers(1000, 60_000, rows)) * np.int64(7919)
    judged = FrequencySketch().add(keys)
    later = np.arange(rows) > rows // 2
    assert judged[hot & later].mean() > 0.99
    assert judged[~hot & later].mean() < 0.03


@pytest.mark.parametrize(
    "bad", [{"bits": 3}, {"threshold": 255}, {"threshold": -1}, {"rows": 0}, {"width": 0}, {"interval": 0}]
)
def test_what_cannot_be_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        SketchSize(**bad)


@given(st.integers(1 << 10, 1 << 20))
def test_a_sketch_is_made_for_so_much_memory(nbytes: int) -> None:
    size = SketchSize.of_memory(nbytes)
    assert nbytes - 4 <= size.nbytes < nbytes + 4 * 8
    assert SketchSize.of_memory(16 << 10) == SketchSize()
