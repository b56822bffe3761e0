"""About how many different values there are: a HyperLogLog sketch, a few hundred bytes a key at most.

A value's 64-bit hash names one of ``2^p`` registers by its first ``p`` bits; a register holds the largest position of
the first set bit that it has seen among the others. Merging takes the larger of each two registers, in any order.

The state is one byte string: while few registers are used, one little-endian 32-bit word for each of them, register
number times 256 plus its value, ascending; else one byte for each register. A string as long as there are registers is
of the second form, and one of the first form is always shorter. This is the form of checkpoints.

The count is estimated by the formula of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches"
(2017), which needs no tables of empirical corrections and is right for few and for many values alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import Output, StateSpec
from tailrace.operators.aggregate.functions.descriptor import Descriptor
from tailrace.operators.aggregate.functions.packed_values import BINARY, binary, parts_of
from tailrace.operators.aggregate.functions.states import StateKind, present_rows, run_numbers
from tailrace.operators.aggregate.functions.values import Values
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.state.layout import HASH, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.types import BIGINT, DataType, Field

__all__ = ["approx_count_distinct"]

_BITS_MIN, _BITS_MAX = 4, 20
_ENTRY_BYTES = 4
_VALUES_MAX = 64
"""Register values are below it."""


class HyperLogLog:
    def __init__(self, spec: StateSpec) -> None:
        (self._type,), (bits,) = spec.types, spec.arguments
        assert isinstance(bits, int)
        self._bits = bits

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        (values,), numbers = present_rows(columns, offsets)
        hashes = hashes_of(values, self._type).view(np.uint64)
        registers = (hashes >> np.uint64(64 - self._bits)).astype(np.int64)
        # The position of the first set bit. Doubles hold 53 bits exactly: what comes after these is not looked at.
        rest = (hashes << np.uint64(self._bits)) >> np.uint64(11)
        found = 54 - np.frexp(rest.astype(np.float64))[1].astype(np.int64)
        return [self._packed(numbers, registers, np.minimum(found, 54), len(offsets) - 1)]

    def merge(self, states: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        sketches, registers, found = entries_of(states[0], self._bits)
        return [self._packed(run_numbers(offsets)[sketches], registers, found, len(offsets) - 1)]

    def _packed(self, numbers: np.ndarray, registers: np.ndarray, found: np.ndarray, groups: int) -> pa.Array:
        """Sketches of the largest value of each register."""
        size = 1 << self._bits
        places = numbers * size + registers
        order = np.lexsort((found, places))
        last = np.flatnonzero(np.diff(places[order], append=-1))
        chosen = order[last]
        numbers, registers, found = numbers[chosen], registers[chosen], found[chosen]
        counts = np.bincount(numbers, minlength=groups)
        dense = counts * _ENTRY_BYTES >= size
        offsets = np.concatenate([[0], np.cumsum(np.where(dense, size, counts * _ENTRY_BYTES))])
        data = np.zeros(int(offsets[-1]), np.uint8)
        of_dense = dense[numbers]
        data[offsets[numbers[of_dense]] + registers[of_dense]] = found[of_dense]
        inside = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
        words = offsets[numbers] // _ENTRY_BYTES + inside
        data.view("<u4")[words[~of_dense]] = registers[~of_dense] << 8 | found[~of_dense]
        return binary(offsets, data)


def hashes_of(values: pa.Array, type_: DataType) -> np.ndarray:
    """A 64-bit hash of each value; equal values have the same: all NaNs are equal, and both zeros."""
    if type_.is_float:
        doubles = np.asarray(values.cast(pa.float64())) + 0.0  # -0.0 becomes 0.0
        values, type_ = pa.array(np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)), BIGINT
    layout = record_layout([Field("value", type_)], [], ansi=False)
    builder = RowsBuilder(len(values), layout)
    builder.put(values, type_, layout.keys[0].word, layout.keys[0].bit)
    rows = builder.finish()
    put_hashes(rows, hash_program(layout))
    return np.ascontiguousarray(rows.words[:, HASH])


def entries_of(sketches: pa.Array, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sketch, register, value) of each register that is used."""
    offsets, data = parts_of(sketches)
    sizes, size = np.diff(offsets), 1 << bits
    dense = sizes == size
    whole = data[np.repeat(dense, sizes)].reshape(-1, size)
    row, register = np.nonzero(whole)
    words = np.ascontiguousarray(data[np.repeat(~dense, sizes)]).view("<u4").astype(np.int64)
    few = np.repeat(np.flatnonzero(~dense), sizes[~dense] // _ENTRY_BYTES)
    return (
        np.concatenate([np.flatnonzero(dense)[row], few]),
        np.concatenate([register, words >> 8]),
        np.concatenate([whole[row, register].astype(np.int64), words & 0xFF]),
    )


def estimates(sketches: pa.Array, bits: int) -> np.ndarray:
    """About how many different values each sketch has seen."""
    size = float(1 << bits)
    which, _, found = entries_of(sketches, bits)
    shape = (len(sketches), _VALUES_MAX)
    used = np.bincount(which * _VALUES_MAX + found, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    total = np.zeros(len(sketches))
    for value in range(_VALUES_MAX - 1, 0, -1):
        total = 0.5 * (total + used[:, value])
    unused = 1.0 - used.sum(axis=1) / size
    some = unused < 1.0
    out = np.zeros(len(sketches))
    out[some] = size * size / (2.0 * math.log(2.0)) / (total[some] + size * _series(unused[some]))
    return out


def _series(x: np.ndarray) -> np.ndarray:
    """x + sum of x^(2^k) * 2^(k - 1) over k from 1 on, for shares below 1."""
    total, factor = x.copy(), 1.0
    for _ in range(64):
        x = x * x
        total, factor = total + x * factor, factor * 2.0
    return total


_SKETCH = StateKind("hyperloglog", lambda spec: (BINARY,), HyperLogLog, "a HyperLogLog sketch of {}")


def _finish(values: Sequence[Values], output: Output) -> pa.Array:
    (bits,) = output.arguments
    assert isinstance(bits, int)
    return pa.array(np.rint(estimates(values[0].states(), bits)).astype(np.int64))


_APPROX_COUNT_DISTINCT = Descriptor(
    "approx_count_distinct", lambda inputs: BIGINT, keeps=_SKETCH.accumulators, finish=_finish
)


def approx_count_distinct(col: ColumnOrName, rsd: float | None = None) -> Aggregate:
    """About how many different values there are; nulls are left out.

    ``rsd`` is the largest relative standard deviation that is allowed, 0.05 by default as in Spark: two answers in
    three are within it, 19 of 20 within twice as much. A key keeps four bytes for each different value, and at most 512
    bytes with the default (1.22 / rsd^2, rounded up to a power of two). The sketch is not Spark's, so that answers
    differ from Spark's within the error.

    >>> approx_count_distinct("bidder").name
    'approx_count_distinct(bidder)'
    """
    share = 0.05 if rsd is None else rsd
    if isinstance(share, bool) or not isinstance(share, int | float) or not share > 0:
        raise AnalysisError(f"approx_count_distinct: rsd must be a number above 0, but is {rsd!r}: 0.05, for example")
    bits = math.ceil(2.0 * math.log2(1.106 / share))
    if not _BITS_MIN <= bits <= _BITS_MAX:
        least, most = (1.106 / 2 ** (bound / 2) for bound in (_BITS_MAX, _BITS_MIN))
        raise AnalysisError(
            f"approx_count_distinct: rsd {rsd!r} is not supported, it must be from {least:.2g} to {most:.2g}: use "
            f"count_distinct for an exact answer"
        )
    return _APPROX_COUNT_DISTINCT(col, arguments=(bits,))
