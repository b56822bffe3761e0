"""Which keys are hot: a Count-Min sketch with saturating counters that age.

A key is counted in one counter of each row; it is *hot* while all of these exceed the threshold. A counter stops at
its largest value, and after every ``interval`` keys all are halved, so that keys which were hot once cool down.
Counters are never below what exact counting with the same halving would give, as long as none is full: a hot key is
never missed, and a rare one is taken for hot only where other keys share all its counters.

Invariants: ``nbytes`` is fixed at the start, ``rows * width * bits / 8`` bytes, each row rounded up to 8.
Threads: one at a time; the kernel holds no interpreter lock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.state.cache.sketch_kernels import count_keys, count_of

BITS = (2, 4, 8, 16)


@dataclass(frozen=True)
class SketchSize:
    """What a sketch is made of."""

    rows: int = 4
    """So many counters count a key, each in a row of its own."""
    width: int = 4096
    bits: int = 8
    """Of a counter, which stays at its greatest number."""
    threshold: int = 32
    """Keys that were counted more often are hot."""
    interval: int = 65_536
    """After so many keys all counters are halved."""

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"bits must be one of {BITS}, but is {self.bits}")
        if min(self.rows, self.width, self.interval) < 1:
            raise ValueError(f"rows, width and interval must be at least 1: {self}")
        if not 0 <= self.threshold < self.counter_max:
            raise ValueError(
                f"threshold must be from 0 to {self.counter_max - 1}, since a counter of {self.bits} bits "
                f"stops at {self.counter_max}, but is {self.threshold}"
            )

    @classmethod
    def of_memory(cls, nbytes: int) -> SketchSize:
        """A sketch of about so many bytes: four rows of 8-bit counters, halved after 16 keys for each counter of a row.

        So where all keys come equally often, a counter is 32 at most on average, which is the threshold.
        """
        width = max(1, nbytes // 4)
        return cls(rows=4, width=width, bits=8, threshold=32, interval=16 * width)

    @property
    def counter_max(self) -> int:
        return (1 << self.bits) - 1

    @property
    def nbytes(self) -> int:
        return self.rows * self._words * 8

    @property
    def _words(self) -> int:
        fields = 64 // self.bits
        return -(-self.width // fields)

    def cells(self) -> np.ndarray:
        return np.zeros((self.rows, self._words), np.uint64)

    @property
    def halves(self) -> int:
        """A word whose fields have every bit but their highest."""
        field = self.counter_max >> 1
        return sum(field << shift for shift in range(0, 64, self.bits))


class FrequencySketch:
    """Keys come as 64-bit hashes."""

    def __init__(self, size: SketchSize | None = None) -> None:
        self.size = size or SketchSize()
        self._cells = self.size.cells()
        self._halves = np.uint64(self.size.halves)
        self._counted = 0

    @property
    def nbytes(self) -> int:
        return int(self._cells.nbytes)

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Count these keys in order; of each, whether it was hot once it was counted."""
        size = self.size
        hot = np.empty(len(keys), np.bool_)
        self._counted = int(
            count_keys(
                np.ascontiguousarray(keys, np.int64),
                self._cells,
                size.width,
                size.bits,
                self._halves,
                size.threshold,
                size.interval,
                self._counted,
                hot,
            )
        )
        return hot

    def counts(self, keys: np.ndarray) -> np.ndarray:
        """How often these keys have come, as far as the sketch knows."""
        out = np.empty(len(keys), np.int64)
        count_of(np.ascontiguousarray(keys, np.int64), self._cells, self.size.width, self.size.bits, out)
        return out
