"""Values to dense numbers in the order in which they first appear: what every metric over keys works on."""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.analysis.kernels import number_by_appearance


def numbered(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Of each value its number, int64 from 0 on, and how many there are.

    >>> numbered(np.array([7, 3, 7, 9]))
    (array([0, 1, 0, 2]), 3)
    """
    values = np.ascontiguousarray(values, np.int64)
    slots = np.full(1 << max(2, (2 * len(values)).bit_length()), -1, np.int64)
    seen, numbers = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    return numbers, int(number_by_appearance(values, slots, seen, numbers))


def paired(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers of pairs, by first appearance."""
    (left, _), (right, width) = numbered(first), numbered(second)
    return numbered(left * max(1, width) + right)
