"""Approximate percentiles: a mergeable sketch of quantiles by levels of sampled values (a KLL sketch).

A value on level ``l`` stands for ``2^l`` values of the input. Where a sketch holds more than it may, its lowest level
that is full is sorted, and every other value moves one level up while the rest are dropped; on which of the two a level
begins is a coin that is tossed by hashing the level's values, so that a replay gives the same bytes. Two sketches merge
by putting their levels together. The top level may hold ``k`` values, each level below two thirds of the one above it.
The weights of a sketch always add up to the number of values that it has seen.

The state is one byte string of 64-bit words: the number of levels, how many values each has, then the values, level by
level, each level ascending. Values are kept as integers that sort as they do. This is the form of checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.api.aggregates import Aggregate
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import Inputs, Output, StateSpec
from tailrace.operators.aggregate.functions.descriptor import Descriptor
from tailrace.operators.aggregate.functions.groups import lists
from tailrace.operators.aggregate.functions.packed_values import BINARY, binary, parts_of
from tailrace.operators.aggregate.functions.states import StateKind, present_rows, run_numbers
from tailrace.operators.aggregate.functions.values import Values
from tailrace.state.rows import columns as column_words
from tailrace.types import DataType, Field, Kind, array

__all__ = ["approx_percentile", "percentile_approx"]

_SHRINK = 2.0 / 3.0
_LEVEL_MIN = 8
_LEVELS_MAX = 48
_SIZE_OF_ACCURACY = 2
"""Values on the top level for each unit of accuracy: measured, ranks are then off by half of what is allowed."""
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class QuantileSketch:
    def __init__(self, spec: StateSpec) -> None:
        (self._type,), (size, *_) = spec.types, spec.arguments
        assert isinstance(size, int)
        # Of a sketch with so many levels, what each may hold; and all of them together.
        levels = np.arange(_LEVELS_MAX)
        below_top = np.maximum(levels[:, None] - levels[None, :], 0)
        self._rooms = np.maximum(np.ceil(size * _SHRINK**below_top), _LEVEL_MIN).astype(np.int64)
        self._rooms[levels[None, :] > levels[:, None]] = 0

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        (values,), numbers = present_rows(columns, offsets)
        words = sortable(column_words.fixed_words(values, self._type, None), self._type)
        return [self._packed(numbers, np.zeros(len(words), np.int64), words, len(offsets) - 1)]

    def merge(self, states: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        sketches, levels, words = entries_of(states[0])
        return [self._packed(run_numbers(offsets)[sketches], levels, words, len(offsets) - 1)]

    def _packed(self, numbers: np.ndarray, levels: np.ndarray, words: np.ndarray, groups: int) -> pa.Array:
        numbers, levels, words = self._compacted(numbers, levels, words, groups)
        order = np.lexsort((words, levels, numbers))
        numbers, levels, words = numbers[order], levels[order], words[order]
        heights = np.zeros(groups, np.int64)
        np.maximum.at(heights, numbers, levels + 1)
        counts = np.bincount(numbers, minlength=groups)
        sizes = np.where(counts > 0, 1 + heights + counts, 0)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        data = np.zeros(int(ends[-1]), np.int64)
        some = np.flatnonzero(counts)
        data[ends[some]] = heights[some]
        np.add.at(data, ends[numbers] + 1 + levels, 1)
        inside = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
        data[ends[numbers] + 1 + heights[numbers] + inside] = words
        return binary(ends * 8, data.view(np.uint8))

    def _compacted(
        self, numbers: np.ndarray, levels: np.ndarray, words: np.ndarray, groups: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same sketches, each within its room. From the lowest level up, as often as it takes."""
        while True:
            heights = np.zeros(groups, np.int64)
            np.maximum.at(heights, numbers, levels)
            over = np.bincount(numbers, minlength=groups) > self._rooms.sum(axis=1)[heights]
            if not over.any():
                return numbers, levels, words
            for level in range(int(levels[over[numbers]].max()) + 1):
                held = np.bincount(numbers[levels == level], minlength=groups)
                full = over & (held > self._rooms[heights, level]) & (held > 1)
                if not full.any():
                    continue
                moving = np.flatnonzero((levels == level) & full[numbers])
                stays, rises = _halved(numbers[moving], words[moving], level)
                levels[moving[rises]] += 1
                keep = np.ones(len(numbers), bool)
                keep[moving] = False
                keep[moving[stays]] = keep[moving[rises]] = True
                numbers, levels, words = numbers[keep], levels[keep], words[keep]
                np.maximum.at(heights, numbers, levels)
                over &= np.bincount(numbers, minlength=groups) > self._rooms.sum(axis=1)[heights]


def _halved(numbers: np.ndarray, words: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the values of a level, by group: which one stays where their number is odd, and which go up."""
    order = np.lexsort((words, numbers))
    sorted_numbers = numbers[order]
    firsts = np.flatnonzero(np.diff(sorted_numbers, prepend=-1))
    counts = np.diff(np.append(firsts, len(order)))
    place = np.arange(len(order)) - np.repeat(firsts, counts)
    coins = _coins(np.add.reduceat(words[order].astype(np.uint64) * _MIX[0], firsts), level)
    # An odd value that stays is the smallest or the largest by the other coin, so that neither end is favoured.
    odd, low = counts % 2, coins >> 1
    pair_first = np.where((odd == 1) & (low == 1), 1, 0)
    alone = np.where(low == 1, 0, counts - 1)
    stays = (np.repeat(odd, counts) == 1) & (place == np.repeat(alone, counts))
    pairs = place - np.repeat(pair_first, counts)
    rises = ~stays & (pairs % 2 == np.repeat(coins & 1, counts))
    return order[stays], order[rises]


def _coins(seeds: np.ndarray, level: int) -> np.ndarray:
    """Two random bits from each seed."""
    mixed = seeds + np.uint64((level + 1) * int(_MIX[0]) % 2**64)
    for factor, shift in ((_MIX[1], 30), (_MIX[2], 27)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return (mixed >> np.uint64(62)).astype(np.int64)


def entries_of(sketches: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sketch, level, value as a sortable word) of everything that sketches hold, sketch by sketch."""
    offsets, data = parts_of(sketches)
    words, starts = data.view(np.int64), offsets[:-1] // 8
    some = np.flatnonzero(np.diff(offsets))
    heights = words[starts[some]]
    level_numbers = _ranges(heights)
    level_sizes = words[np.repeat(starts[some] + 1, heights) + level_numbers]
    owners = np.repeat(some, heights)
    counts = np.bincount(owners, level_sizes, minlength=len(sketches)).astype(np.int64)
    which = np.repeat(np.arange(len(sketches)), counts)
    first = np.zeros(len(sketches), np.int64)
    first[some] = starts[some] + 1 + heights
    return which, np.repeat(level_numbers, level_sizes), words[first[which] + _ranges(counts)]


def _ranges(counts: np.ndarray) -> np.ndarray:
    """0 to count - 1 for each count, one after the other."""
    places: np.ndarray = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def sortable(words: np.ndarray, type_: DataType) -> np.ndarray:
    """Words of values as integers that sort as the values do; of doubles NaN last, as in Spark. Its own inverse."""
    if not type_.is_float:
        return words
    doubles = np.where(np.isnan(words.view(np.float64)), np.nan, words.view(np.float64) + 0.0).view(np.int64)
    return np.where(doubles < 0, doubles ^ np.int64(2**63 - 1), doubles)


def _from_sortable(words: np.ndarray, type_: DataType) -> np.ndarray:
    return np.where(words < 0, words ^ np.int64(2**63 - 1), words) if type_.is_float else words


def quantiles(sketches: pa.Array, shares: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Words ``[sketches, shares]``: the first value that so large a share of all is not above; and which have any."""
    which, levels, words = entries_of(sketches)
    order = np.lexsort((words, which))
    weights = np.left_shift(np.int64(1), levels[order])
    upto = np.cumsum(weights)
    counts = np.bincount(which, minlength=len(sketches))
    ends = np.cumsum(counts)
    before = np.concatenate([[0], upto])[ends - counts]
    total = np.concatenate([[0], upto])[ends] - before
    out = np.zeros((len(sketches), len(shares)), np.int64)
    some = np.flatnonzero(counts)
    for at, share in enumerate(shares):
        rank = np.maximum(1, np.ceil(share * total[some])).astype(np.int64)
        found = np.searchsorted(upto, before[some] + rank)
        out[some, at] = words[order][np.minimum(found, ends[some] - 1)]
    return out, counts > 0


_SKETCH = StateKind("quantile_sketch", lambda spec: (BINARY,), QuantileSketch, "a sketch of the quantiles of {}")


def _finish(values: Sequence[Values], output: Output) -> pa.Array:
    _, shares = output.arguments
    element = output.type.element or output.type
    wanted = shares if isinstance(shares, tuple) else (shares,)
    words, some = quantiles(values[0].states(), [float(share) for share in wanted if share is not None])
    flat = _from_sortable(words[some].reshape(-1) if output.type.element else words[:, 0], element)
    if output.type.element is None:
        return column_words.decode(flat, some, np.empty(0, np.uint8), element)
    decoded = column_words.decode(flat, None, np.empty(0, np.uint8), element)
    made = lists(decoded, np.full(int(some.sum()), len(wanted)))
    at = np.cumsum(some) - 1
    return made.take(pa.array(at, mask=~some))


def _takes(shown: str, function: str, field: Field) -> None:
    type_ = field.type
    if not (type_.is_numeric or type_.is_time or type_.name == "date"):
        needed = "a number, a date or a timestamp"
    elif type_.kind is Kind.INT128:
        needed = "a double, or a decimal of at most 18 digits,"  # a sketch keeps a value in 64 bits
    else:
        return
    raise AnalysisError(
        f"{shown}: {function} needs {needed} and column {field.name!r} is a {type_}: cast it first, "
        f"for example .withColumn({field.name!r}, F.col({field.name!r}).cast('double'))"
    )


def _result(inputs: Inputs) -> DataType:
    return array(inputs.type) if isinstance(inputs.arguments[1], tuple) else inputs.type


_APPROX_PERCENTILE = Descriptor(
    "approx_percentile",
    _result,
    keeps=lambda inputs: _SKETCH.accumulators(Inputs(inputs.columns, inputs.types, inputs.arguments[:1])),
    finish=_finish,
    takes=_takes,
)


def approx_percentile(
    col: str, percentage: float | list[float] | tuple[float, ...], accuracy: int = 10000
) -> Aggregate:
    """The value below or at which ``percentage`` (0 to 1) of the values lie, about; of a list, one for each.

    The answer is one of the values. Its rank is off by at most ``1 / accuracy`` of the number of values, in 99 answers
    of 100; up to twice ``accuracy`` values it is exact. A key keeps eight bytes a value, for at most six times
    ``accuracy`` of them: with a smaller accuracy large groups are kept in less. Nulls are left out. Decimals of more
    than 18 digits must be cast before, to double for example.

    >>> approx_percentile("price", 0.99).name
    'approx_percentile(price, 0.99, 10000)'
    """
    many = isinstance(percentage, list | tuple)
    shares = tuple(percentage) if isinstance(percentage, list | tuple) else (percentage,)
    if not shares or any(isinstance(s, bool) or not isinstance(s, int | float) or not 0 <= s <= 1 for s in shares):
        raise AnalysisError(
            f"approx_percentile: percentage must be a number from 0 to 1, or a list of such, but is {percentage!r}"
        )
    if isinstance(accuracy, bool) or not isinstance(accuracy, int) or not 1 <= accuracy <= 1_000_000:
        raise AnalysisError(
            f"approx_percentile: accuracy must be a whole number from 1 to 1,000,000, but is {accuracy!r}"
        )
    size = max(_LEVEL_MIN, _SIZE_OF_ACCURACY * accuracy)
    text = f"array({', '.join(map(str, shares))})" if many else str(percentage)
    exact = tuple(float(share) for share in shares)
    arguments = (size, exact if many else exact[0])
    return _APPROX_PERCENTILE(col, arguments=arguments, shown=f"approx_percentile({{}}, {text}, {accuracy})")


def percentile_approx(
    col: str, percentage: float | list[float] | tuple[float, ...], accuracy: int = 10000
) -> Aggregate:
    """Another name for :func:`approx_percentile`, as in PySpark."""
    made = approx_percentile(col, percentage, accuracy)
    return _APPROX_PERCENTILE(
        col, arguments=made.arguments, shown=made.shown.replace("approx_percentile", "percentile_approx", 1)
    )
