"""Compiled loops over tables of ids: an open-addressed index from a 64-bit id to the number of its entry."""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel

EMPTY = -1
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


@inlined
def _place(id_: int, mask: int) -> int:
    """Where to begin looking: ids may be positions or counters, so their bits are mixed."""
    bits = np.uint64(id_)
    bits ^= bits >> np.uint64(33)
    bits *= _MIX_1
    bits ^= bits >> np.uint64(33)
    bits *= _MIX_2
    bits ^= bits >> np.uint64(33)
    place: int = np.int64(bits) & mask  # type: ignore[assignment]
    return place


@inlined
def _look(id_: int, index: np.ndarray, ids: np.ndarray, alive: np.ndarray) -> tuple[int, int]:
    """(the entry of an id, or EMPTY; where in the index the search ended)."""
    mask = len(index) - 1
    at = _place(id_, mask)
    while index[at] != EMPTY:
        entry = index[at]
        if ids[entry] == id_ and alive[entry]:
            return entry, at
        at = (at + 1) & mask
    return EMPTY, at


@kernel
def find(wanted: np.ndarray, index: np.ndarray, ids: np.ndarray, alive: np.ndarray, out: np.ndarray) -> None:
    """The entry of each id, EMPTY where there is none. Entries that are gone stay in the index until it is rebuilt."""
    for i in range(len(wanted)):
        out[i] = _look(wanted[i], index, ids, alive)[0]


@kernel
def add(wanted: np.ndarray, index: np.ndarray, ids: np.ndarray, alive: np.ndarray, count: int, out: np.ndarray) -> int:
    """As ``find``, but ids without an entry get one, numbered from ``count`` on; gives the new count."""
    for i in range(len(wanted)):
        found, at = _look(wanted[i], index, ids, alive)
        if found == EMPTY:
            found = count
            ids[count] = wanted[i]
            alive[count] = True
            index[at] = count
            count += 1
        out[i] = found
    return count


@kernel
def rebuild(index: np.ndarray, ids: np.ndarray, alive: np.ndarray, count: int) -> None:
    """Index the living among the first ``count`` entries."""
    mask = len(index) - 1
    for at in range(len(index)):
        index[at] = EMPTY
    for entry in range(count):
        if alive[entry]:
            at = _place(ids[entry], mask)
            while index[at] != EMPTY:
                at = (at + 1) & mask
            index[at] = entry


@kernel
def sweep(
    marks: np.ndarray, may_go: np.ndarray, count: int, hand: int, wanted: int, out: np.ndarray
) -> tuple[int, int]:
    """Clock's hand: takes unmarked entries and clears the marks of others. Returns (how many, the hand's position)."""
    found = 0
    steps = 0
    while found < wanted and steps < 2 * count:
        if hand >= count:
            hand = 0
        if may_go[hand]:
            if marks[hand] == 0:
                out[found] = hand
                found += 1
                may_go[hand] = False
            else:
                marks[hand] = 0
        hand += 1
        steps += 1
    return found, hand


@kernel
def count_waiting(alive: np.ndarray, hinted: np.ndarray, ranks: np.ndarray, past: int, end: int) -> int:
    """How many of the first ``end`` entries live, are hinted, and have a rank of at least ``past``."""
    count = 0
    for i in range(end):
        if alive[i] and hinted[i] and ranks[i] >= past:
            count += 1
    return count
