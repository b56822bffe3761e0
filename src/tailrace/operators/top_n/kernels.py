"""Kernels that order rows and keep the best of each key. Free functions over arrays.

An order is a matrix of (word, valid bit, kind, sign), the most important first: sign 1 where smaller is better. Values
compare as Spark's do: null is smaller than anything, NaN larger, zeros are equal.

Threads: kernels write only to the arrays that they are given for it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

from tailrace.env.kernels.compile import inlined, kernel
from tailrace.state.layout import K_FLOAT64, VALID
from tailrace.state.rows.value_kernels import compare_values

WORD, BIT, KIND, SIGN = 0, 1, 2, 3


@inlined
def compare_rows(words, heap, a, b, order):
    """Below 0 where row ``a`` is better, 0 where no value distinguishes them."""
    for t in range(order.shape[0]):
        there, other = words[a, VALID] >> order[t, BIT] & 1, words[b, VALID] >> order[t, BIT] & 1
        if there != other:
            return (there - other) * order[t, SIGN]
        if there:
            result = compare_values(order[t, KIND], words, a, heap, words, b, heap, order[t, WORD])
            if result != 0:
                return result * order[t, SIGN]
    # Zeros, and NaNs, that are equal but not the same: so that it never matters which row came first.
    for t in range(order.shape[0]):
        if order[t, KIND] == K_FLOAT64 and words[a, order[t, WORD]] != words[b, order[t, WORD]]:
            return -1 if words[a, order[t, WORD]] < words[b, order[t, WORD]] else 1
    return 0


@kernel
def best_rows(words, heap, numbers, order, starts, counts, best):
    """Keep, for each group, as many of its rows as it has room for, the best first.

    ``numbers``: of each row its group. The room of group ``g`` is ``best[starts[g]:starts[g + 1]]``; ``counts`` are 0.
    Of two rows that no value distinguishes the first stays before the other.
    """
    for i in range(words.shape[0]):
        group = numbers[i]
        begin = starts[group]
        end = begin + counts[group]
        full = end == starts[group + 1]
        if full and compare_rows(words, heap, i, best[end - 1], order) >= 0:
            continue
        if full:
            end -= 1
        else:
            counts[group] += 1
        low, high = begin, end
        while low < high:
            middle = (low + high) // 2
            if compare_rows(words, heap, i, best[middle], order) < 0:
                high = middle
            else:
                low = middle + 1
        for place in range(end, low, -1):
            best[place] = best[place - 1]
        best[low] = i
